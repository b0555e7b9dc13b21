"""FedACG: clients start from the model after the server's momentum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


def fedacg(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    eta: float,
    s: float,
    mu: float,
    lam: float,
) -> list[Array]:
    theta, m = problem.theta0, np.zeros(problem.d)
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        y, deltas = theta - s * lam * m, []
        for i in cohort:
            rng, theta_i = problem.noises(i, t), y
            for _ in range(K):
                grad = problem.grad(i, theta_i, problem.draw(rng))
                theta_i = theta_i - eta * (grad + mu * (theta_i - y))
            deltas.append(y - theta_i)
        m = lam * m + np.mean(deltas, axis=0)
        theta = theta - s * m
        thetas.append(theta)
    return thetas
