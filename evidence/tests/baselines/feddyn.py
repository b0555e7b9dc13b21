"""FedDyn: dynamic regularisation, with the models of the round at the server."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


def feddyn(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    eta: float,
    alpha: float,
) -> list[Array]:
    N = len(problem.b)
    theta, h = problem.theta0, np.zeros(problem.d)
    h_i = [np.zeros(problem.d) for _ in range(N)]
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        theta_K = {}
        for i in cohort:
            rng, theta_i = problem.noises(i, t), theta
            for _ in range(K):
                grad = problem.grad(i, theta_i, problem.draw(rng))
                theta_i = theta_i - eta * (grad - h_i[i] + alpha * (theta_i - theta))
            h_i[i] = h_i[i] - alpha * (theta_i - theta)
            theta_K[i] = theta_i
        h = h - alpha / N * sum((theta_K[i] - theta for i in cohort), np.zeros(problem.d))
        theta = np.mean([theta_K[i] for i in cohort], axis=0) - h / alpha
        thetas.append(theta)
    return thetas
