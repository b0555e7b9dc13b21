"""FedProx: local steps on the loss plus (mu/2) ||theta_i - theta||^2."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


def fedprox(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    eta: float,
    s: float,
    mu: float,
) -> list[Array]:
    theta = problem.theta0
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        theta_K = []
        for i in cohort:
            rng, theta_i = problem.noises(i, t), theta
            for _ in range(K):
                grad = problem.grad(i, theta_i, problem.draw(rng))
                theta_i = theta_i - eta * (grad + mu * (theta_i - theta))
            theta_K.append(theta_i)
        theta = theta - s * (theta - np.mean(theta_K, axis=0))
        thetas.append(theta)
    return thetas
