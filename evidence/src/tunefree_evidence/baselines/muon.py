"""Muon's step, and the clients that make it: matrices move along polar factors, vectors by Adam.

Jordan, Jin, Boza, You, Cesista, Newhouse, Bernstein, "Muon: an optimizer for hidden layers in
neural networks", 2024 (lines numbered by us). A matrix is a tensor of two or more axes, m by n:
(first axis, all others); a model's embedding and head are among them. Other tensors are vectors.

    O(u)_l about the polar factor of matrix l, five Newton-Schulz steps from u_l / ||u_l||; of a
           matrix of one row or column u_l / ||u_l|| itself
    Muon(u)_l = sqrt(max(1, m / n)) O(u)_l

     1  K times from θ_i = θ:  g = ∇F(θ_i; ξ), cut to norm 10;  k = k + 1
     2      matrices: M_i = μ M_i + (1 - μ) g;  p = Muon(μ M_i + (1 - μ) g)        Nesterov
                                                or p = Muon(M_i)
     3      vectors:  M_i = 0.9 M_i + 0.1 g;  v_i = 0.95 v_i + 0.05 g^2
                      p = ρ (M_i / (1 - 0.9^k)) / (sqrt(v_i / (1 - 0.95^k)) + 1e-8)
     4      θ_i = θ_i - η (p + λ θ_i)                                              λ = 0, or given
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import ClassVar, NamedTuple

import torch

from tunefree.core import Method, Oracle, Shapes, Vec, norm
from tunefree.geometry import polar_factors, split

ETAS = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)  # in the grids of Muon clients


def muon(u: Vec, shapes: Shapes) -> Vec:
    """Muon's direction of the matrices; a vector's is not used."""
    result = polar_factors(u, shapes)
    for shape, part in zip(shapes or (), split(result, shapes), strict=shapes is not None):
        if len(shape) > 1:
            part.mul_(max(1.0, shape[0] / max(prod(shape[1:]), 1)) ** 0.5)
    return result


def joined(matrices: Vec, others: Vec, shapes: Shapes) -> Vec:
    """The matrices of one vector, which have two or more axes, and the other tensors of another.

    >>> joined(torch.tensor([1.0, 2.0, 3.0]), torch.zeros(3), ((2, 1), (1,)))
    tensor([1., 2., 0.])
    """
    if shapes is None:
        return others
    parts = zip(shapes, split(matrices, shapes), split(others, shapes), strict=True)
    return torch.cat([u if len(shape) > 1 else w for shape, u, w in parts])


class Moments(NamedTuple):
    """Momentum, the vectors' second moment, and the steps that it has seen."""

    M: Vec
    v: Vec
    k: int = 0


def anew(theta: Vec) -> Moments:
    return Moments(M=0 * theta, v=0 * theta)


class Averaged(NamedTuple):
    """An upload to a server that also averages the matrices' momentum."""

    delta: Vec
    dm: Vec


@dataclass(frozen=True)
class MuonClients(Method):
    eta: float = 0.02
    mu: float = 0.95
    rho: float = 0.1
    clip: float = 10.0
    weight_decay: float = 0.0

    nesterov: ClassVar[bool] = True

    def walk(
        self, theta: Vec, start: Moments, F: Oracle, turned: Callable[[Vec], Vec] = lambda p: p
    ) -> tuple[Vec, Moments]:
        """D where the K steps lead to θ_i = θ - η D, and the moments there."""
        (M, v, k), mu, shapes = start, self.mu, self.shapes
        D = 0 * theta
        for _ in range(self.sys.K):
            x = theta - self.eta * D
            grad = F.grad(x, F.draw())
            grad = grad * (self.clip / norm(grad).clamp_min(self.clip))  # 1
            k += 1
            M = joined(mu * M + (1 - mu) * grad, 0.9 * M + 0.1 * grad, shapes)  # 2, 3
            v = 0.95 * v + 0.05 * grad * grad  # 3
            ahead = mu * M + (1 - mu) * grad if self.nesterov else M  # 2
            adam = M / (1 - 0.9**k) / ((v / (1 - 0.95**k)).sqrt() + 1e-8)  # 3
            D = D + turned(
                joined(muon(ahead, shapes), self.rho * adam, shapes) + self.weight_decay * x
            )  # 4
        return D, Moments(M, v, k)

    def increment(self, M: Vec, end: Moments) -> Vec:
        """By how much the matrices' momentum has changed; that of vectors starts anew."""
        return joined(end.M - M, 0 * M, self.shapes)
