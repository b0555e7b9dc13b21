"""SCAFFOLD-M-VR: SCAFFOLD-M with a STORM correction at the previous server model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


def scaffold_m_vr(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    eta: float,
    gamma: float,
    beta: float,
    start: str = "gradients",
) -> list[Array]:
    N, S = len(problem.b), len(cohorts[0])
    theta = problem.theta0
    theta_prev = theta
    c_i = [np.zeros(problem.d) for _ in range(N)]
    if start == "gradients":
        for i in range(N):
            rng = problem.noises(i, -1)
            for _ in range(K):
                c_i[i] = c_i[i] + problem.grad(i, theta, problem.draw(rng)) / K
    c = sum(c_i, np.zeros(problem.d)) / N
    g = c

    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        theta_K, c_i_new = {}, list(c_i)
        for i in cohort:
            rng = problem.noises(i, t)
            theta_i, total = theta, np.zeros(problem.d)
            for _ in range(K):
                xi = problem.draw(rng)
                grad = problem.grad(i, theta_i, xi)
                storm = g - problem.grad(i, theta_prev, xi)
                theta_i = theta_i - eta * (grad - beta * (c_i[i] - c) + (1 - beta) * storm)
                total = total + grad
            theta_K[i], c_i_new[i] = theta_i, total / K
        g = sum((theta - theta_K[i] for i in cohort), np.zeros(problem.d)) / (eta * K * S)
        theta_prev, theta = theta, theta - gamma * g
        c = c + sum((c_i_new[i] - c_i[i] for i in cohort), np.zeros(problem.d)) / N
        c_i = c_i_new
        thetas.append(theta)
    return thetas
