"""FedSPS: local steps of Polyak's size; FedDecSPS lets them decrease."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


def fedsps(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    c: float,
    eta_b: float,
    l_star: float,
    decreasing: bool,
) -> list[Array]:
    N = len(problem.b)
    theta = problem.theta0
    count, c_prev, eta_prev = [0] * N, [c] * N, [eta_b] * N
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        theta_K = []
        for i in cohort:
            rng, theta_i = problem.noises(i, t), theta
            for _ in range(K):
                xi = problem.draw(rng)
                grad = problem.grad(i, theta_i, xi)
                polyak = (problem.loss(i, theta_i, xi) - l_star) / float(grad @ grad)
                if decreasing:
                    c_t = c * (count[i] + 1) ** 0.5
                    eta = 1 / c_t * min(polyak, c_prev[i] * eta_prev[i])
                    count[i], c_prev[i], eta_prev[i] = count[i] + 1, c_t, eta
                else:
                    eta = min(polyak / c, eta_b)
                theta_i = theta_i - eta * grad
            theta_K.append(theta_i)
        theta = np.mean(theta_K, axis=0)
        thetas.append(theta)
    return thetas
