"""FedCM: the last round's direction is mixed into every local step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


def fedcm(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    eta: float,
    s: float,
    alpha: float,
) -> list[Array]:
    theta, delta_bar = problem.theta0, np.zeros(problem.d)
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        deltas = []
        for i in cohort:
            rng, theta_i = problem.noises(i, t), theta
            for _ in range(K):
                grad = problem.grad(i, theta_i, problem.draw(rng))
                theta_i = theta_i - eta * (alpha * grad + (1 - alpha) * delta_bar)
            deltas.append(theta - theta_i)
        delta_bar = np.mean(deltas, axis=0) / (eta * K)
        theta = theta - s * eta * K * delta_bar
        thetas.append(theta)
    return thetas
