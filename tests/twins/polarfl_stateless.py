"""The stateless PolarFL as its page prints it; numbers are the page's lines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.twins.compression import Naive, identity
from tests.twins.polarfl import (
    Shape,
    float32,
    one_long,
    own_units,
    pieces,
    polar_one_long,
    size,
    whole,
)
from tunefree.testing import Array, Problem


def polarfl_stateless(
    problem: Problem,
    uploads: Sequence[Sequence[tuple[int, int]]],
    K: int,
    shapes: Sequence[Shape],
    C: Naive = identity,
    *,
    sigma: float = 0.0,
    noises: Sequence[Array] = (),
    S: int = 0,
    own_K: Sequence[int] = (),
    average: str = "on",
) -> list[Array]:
    """`uploads[t]` are the (client, step of its download) that aggregation t uses.

    `noises[t]` is what is added to the sum of round t; S is given where rounds differ in size.
    """
    N, T = len(problem.b), len(uploads)
    S = S or len(uploads[0])
    K_i = own_K or [K] * N
    theta0 = pieces(problem.theta0, shapes)
    r, n = own_units(theta0), [u.size for u in theta0]
    w = [(np.sqrt(n_l) / sum(np.sqrt(n))) ** 0.5 for n_l in n]
    D = np.mean([n_l / w_l**2 for n_l, w_l in zip(n, w, strict=True)])
    M = 1 / (1 / (S * K) + sigma**2 * D / S**2)
    M_10 = 1 / (1 / (S * min(K, 10)) + sigma**2 * D / S**2)

    x, theta_bar = [problem.theta0], [problem.theta0]  # 1
    m = [np.zeros(u.shape) for u in theta0]
    R, h = 0.0, 1.0
    steps: list[list[float]] = []
    walked: list[float] = []
    gains: list[float] = []
    for t in range(T):
        gamma, beta = M_10 ** (1 / 4) / (t + 10) ** (3 / 4), min(1.0, np.sqrt(M / (t + 10)))
        lam = max(1.0, np.sqrt(K / 10)) * M ** (1 / 4) / (t + 10) ** (3 / 4)
        if t > 0:
            come = [
                size(u - u0) / r_l
                for u, u0, r_l in zip(pieces(x[t], shapes), theta0, r, strict=True)
            ]
            square = sum(c**2 for c in come) / len(come)
            R = max(R, 8 * (square - sum(step**2 for step in walked)) / sum(walked))
        a = min(1.0, max(0.1, R))
        steps.append([float32(h * a * lam / K * r_l) for r_l in r])  # 7
        total = np.zeros(problem.d)
        for i, then in uploads[t]:  # 2
            rng = problem.noises(i, then)
            x_i, g = x[then], np.zeros(problem.d)
            for _ in range(K_i[i]):  # 3
                grad = problem.grad(i, x_i, problem.draw(rng))
                own = [step * K / K_i[i] for step in steps[then]]
                N_g = [one_long(u) for u in pieces(grad, shapes)]
                x_i = x_i - whole([step * u for step, u in zip(own, N_g, strict=True)])
                g = g + grad / K_i[i]
            u_i = [w_l * one_long(u) for w_l, u in zip(w, pieces(g, shapes), strict=True)]
            total = total + C(whole(u_i), rng)  # 4
        total = total + (noises[t] if len(noises) else 0)
        divisor = S if len(noises) else len(uploads[t])
        v = [u / w_l for u, w_l in zip(pieces(total / divisor, shapes), w, strict=True)]  # 5
        m = v if t == 0 else [(1 - beta) * b + beta * c for b, c in zip(m, v, strict=True)]
        gains.append(sum(r_l * size(u) for r_l, u in zip(r, m, strict=True)))
        h = min(1.0, 1e4 * gains[t] / max(gains)) if max(gains) > 0 else 1.0
        late = sum(t - then for _, then in uploads[t]) / max(1, len(uploads[t]))
        step = h * a * gamma / np.sqrt(1 + late)
        walked.append(step)
        x.append(
            x[t] - step * whole([r_l * polar_one_long(u) for r_l, u in zip(r, m, strict=True)])
        )
        theta_bar.append(theta_bar[t] + 9 / (t + 9) * (x[t + 1] - theta_bar[t]))  # 6
    return theta_bar if average == "on" else x
