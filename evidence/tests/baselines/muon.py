"""Muon's step and its clients, tensor by tensor, as their page prints them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.twins.polarfl import Shape, newton_schulz, one_long, pieces, size, whole
from tunefree.testing import Array, Problem


def lmo(u: Array) -> Array:
    """About the polar factor of a matrix, singular values near 1; anything else of norm 1."""
    matrix = u.reshape(len(u), -1) if u.ndim > 1 else u
    if u.ndim < 2 or min(matrix.shape) == 1 or size(u) == 0:
        return one_long(u)
    return newton_schulz(matrix).reshape(u.shape)


def muon(u: Array) -> Array:
    m, n = len(u), u.size // len(u)
    return lmo(u) * float(np.sqrt(max(1, m / n)))


class Adam:
    """For one vector."""

    def __init__(self, u: Array) -> None:
        self.m, self.v, self.k = 0 * u, 0 * u, 0

    def step(self, g: Array) -> Array:
        self.k += 1
        self.m = 0.9 * self.m + 0.1 * g
        self.v = 0.95 * self.v + 0.05 * g**2
        m_hat, v_hat = self.m / (1 - 0.9**self.k), self.v / (1 - 0.95**self.k)
        step: Array = m_hat / (np.sqrt(v_hat) + 1e-8)
        return step


Memory = list[Array | Adam]  # the momentum of a matrix, the Adam of a vector


def fresh(d: int, shapes: Sequence[Shape]) -> Memory:
    return [u if u.ndim > 1 else Adam(u) for u in pieces(np.zeros(d), shapes)]


def starting_from(M_bar: Memory, d: int, shapes: Sequence[Shape]) -> Memory:
    """Its momenta of matrices, and new Adams."""
    both = zip(M_bar, fresh(d, shapes), strict=True)
    return [new if isinstance(new, Adam) else M for M, new in both]


def averaged(ends: Sequence[Memory]) -> Memory:
    """The mean momentum of each matrix."""
    return [
        parts[0]
        if isinstance(parts[0], Adam)
        else sum((M for M in parts if not isinstance(M, Adam)), 0 * parts[0]) / len(parts)
        for parts in zip(*ends, strict=True)
    ]


def muon_client(
    problem: Problem,
    shapes: Sequence[Shape],
    i: int,
    t: int,
    theta: Array,
    memory: Memory,
    K: int,
    eta: float,
    mu: float,
    rho: float,
    *,
    clip: float = 10,
    weight_decay: float = 0,
    nesterov: bool = True,
    alpha: float = 0,
    pull: Array | None = None,
) -> Array:
    """theta_i after K steps from theta; `memory` changes on the way."""
    rng, theta_i = problem.noises(i, t), theta
    for _ in range(K):
        grad = problem.grad(i, theta_i, problem.draw(rng))
        if size(grad) > clip:
            grad = grad / size(grad) * clip
        steps = []
        for at, g in enumerate(pieces(grad, shapes)):
            M = memory[at]
            if isinstance(M, Adam):
                steps.append(rho * M.step(g))
            else:
                M = memory[at] = mu * M + (1 - mu) * g
                steps.append(muon(mu * M + (1 - mu) * g if nesterov else M))
        direction = (1 - alpha) * (whole(steps) + weight_decay * theta_i)
        if pull is not None:
            direction = direction + alpha * pull
        theta_i = theta_i - eta * direction
    return theta_i
