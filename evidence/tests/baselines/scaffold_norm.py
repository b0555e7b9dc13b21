"""The ablation of PAdaMFed without momentum: SCAFFOLD on normalised local directions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


def scaffold_norm(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    eta: float,
    gamma: float,
    start: str = "gradients",
) -> list[Array]:
    N, S = len(problem.b), len(cohorts[0])
    theta = problem.theta0
    c_i = [np.zeros(problem.d) for _ in range(N)]
    if start == "gradients":
        for i in range(N):
            rng = problem.noises(i, -1)
            for _ in range(K):
                c_i[i] = c_i[i] + problem.grad(i, theta, problem.draw(rng)) / K
    c = sum(c_i, np.zeros(problem.d)) / N

    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        theta_K, c_i_new = {}, list(c_i)
        for i in cohort:
            rng = problem.noises(i, t)
            theta_i, total = theta, np.zeros(problem.d)
            for _ in range(K):
                grad = problem.grad(i, theta_i, problem.draw(rng))
                g_i = grad - c_i[i] + c
                theta_i = theta_i - eta * g_i / np.linalg.norm(g_i)
                total = total + grad
            theta_K[i], c_i_new[i] = theta_i, total / K
        moved = sum((theta - theta_K[i] for i in cohort), np.zeros(problem.d))
        theta = theta - gamma * moved / (eta * S * K)
        c = c + sum((c_i_new[i] - c_i[i] for i in cohort), np.zeros(problem.d)) / N
        c_i = c_i_new
        thetas.append(theta)
    return thetas
