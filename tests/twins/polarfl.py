"""PolarFL as its page prints it; numbers are the page's lines."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tests.twins.compression import Naive, identity
from tunefree.testing import Array, Problem

Shape = tuple[int, ...]


def pieces(v: Array, shapes: Sequence[Shape]) -> list[Array]:
    """The tensors that make up v, one after the other."""
    found, at = [], 0
    for shape in shapes:
        found.append(v[at : at + prod(shape)].reshape(shape))
        at += prod(shape)
    assert at == len(v)
    return found


def whole(tensors: Sequence[Array]) -> Array:
    return np.concatenate([u.ravel() for u in tensors])


def size(u: Array) -> float:
    return float(np.sqrt((u**2).sum()))


def own_units(theta0: Sequence[Array]) -> list[float]:
    """r_l; of a tensor that starts at zero sqrt(n_l) times the median of the others' per-number."""
    per_number = [size(u) / np.sqrt(u.size) for u in theta0 if size(u) > 0]
    return [size(u) if size(u) > 0 else np.sqrt(u.size) * np.median(per_number) for u in theta0]


def newton_schulz(M: Array) -> Array:
    """About the polar factor of M, by five steps on its short side."""
    a, b, c = 3.4445, -4.7750, 2.0315
    X = M / size(M)
    tall = X.shape[0] > X.shape[1]
    if tall:
        X = X.T
    for _ in range(5):
        A = X @ X.T
        X = a * X + (b * A + c * A @ A) @ X
    return X.T if tall else X


def one_long(u: Array) -> Array:
    return u / size(u) if size(u) > 0 else u


def polar_one_long(u: Array) -> Array:
    if u.ndim < 2 or size(u) == 0:
        return one_long(u)
    O = newton_schulz(u.reshape(len(u), -1))  # noqa: E741
    return (O / size(O)).reshape(u.shape)


def float32(x: float) -> float:
    return float(np.float32(x))


def polarfl(
    problem: Problem,
    uploads: Sequence[Sequence[tuple[int, int]]],
    K: int,
    shapes: Sequence[Shape],
    C: Naive = identity,
    *,
    geometry: str = "polar",
    units: str = "own",
    average: str = "on",
    reach: str = "straight",
    first_pass: str = "off",
    own_K: Sequence[int] = (),
) -> list[Array]:
    """`uploads[t]` are the (client, step of its download) that aggregation t uses."""
    N, S, T = len(problem.b), len(uploads[0]), len(uploads)
    K_i = own_K or [K] * N
    if geometry == "sphere":
        shapes = [(problem.d,)]
    P = polar_one_long if geometry == "polar" else one_long
    theta0 = pieces(problem.theta0, shapes)
    r = own_units(theta0) if units == "own" else [1.0 for _ in theta0]

    theta, theta_bar = [problem.theta0], [problem.theta0]  # 1
    m = [np.zeros(problem.d) for _ in range(N)]
    c_i = [np.zeros(problem.d) for _ in range(N)]
    if first_pass == "on":
        for i in range(N):
            rng = problem.noises(i, -1)
            for _ in range(K_i[i]):
                m[i] = m[i] + problem.grad(i, theta[0], problem.draw(rng)) / K_i[i]
            c_i[i] = m[i]
    c, R = sum(c_i, np.zeros(problem.d)) / N, 0.0
    steps, betas = [], []  # what went down at t
    walked: list[float] = []
    gains: list[float] = []
    h = 1.0

    for t in range(T):  # 2
        gamma = (S * K) ** (1 / 4) / (t + 10) ** (3 / 4)
        beta = min(1.0, np.sqrt(S * K / (t + 10)))
        come = [
            size(u - u0) / r_l
            for u, u0, r_l in zip(pieces(theta[t], shapes), theta0, r, strict=True)
        ]
        D = np.sqrt(sum(x**2 for x in come) / len(come))
        if t > 0 and reach == "straight":
            L, Q = sum(walked), sum(step**2 for step in walked)
            R = max(R, 8 * (D**2 - Q) / L)
        if reach == "distance":
            R = max(R, D)
        a = min(1.0, max(0.1, R))
        if reach == "off":
            a = 1.0
        late = sum(t - then for _, then in uploads[t]) / len(uploads[t])
        b = 1 / np.sqrt(1 + late)
        steps.append([float32(h * a * gamma / K * r_l) for r_l in r])  # 7
        betas.append(float32(beta))

        m_new, d = {}, {}
        for i, then in uploads[t]:  # then = t, unless the upload is late
            rng = problem.noises(i, then)
            theta_i, m_ks = theta[then], []
            for _ in range(K_i[i]):
                grad = problem.grad(i, theta_i, problem.draw(rng))
                m_k = (1 - betas[then]) * m[i] + betas[then] * grad  # 3
                N_m = [one_long(u) for u in pieces(m_k, shapes)]
                own = [step * K / K_i[i] for step in steps[then]]
                moves = [step * u for step, u in zip(own, N_m, strict=True)]
                theta_i = theta_i - whole(moves)
                m_ks.append(m_k)
            m_new[i] = sum(m_ks, np.zeros(problem.d)) / K_i[i]  # 4
            d[i] = C(m_new[i] - c_i[i], rng)
        for i in d:
            m[i], c_i[i] = m_new[i], c_i[i] + d[i]
        total = sum(d.values(), np.zeros(problem.d))
        g = c + total / S  # 5
        P_g = [r_l * P(u) for r_l, u in zip(r, pieces(g, shapes), strict=True)]
        gains.append(sum(r_l * size(u) for r_l, u in zip(r, pieces(g, shapes), strict=True)))
        h = min(1.0, 1e4 * gains[t] / max(gains)) if max(gains) > 0 else 1.0
        walked.append(b * h * a * gamma)
        theta.append(theta[t] - b * h * a * gamma * whole(P_g))
        c = c + total / N
        theta_bar.append(theta_bar[t] + 9 / (t + 9) * (theta[t + 1] - theta_bar[t]))  # 6
    return theta_bar if average == "on" else theta
