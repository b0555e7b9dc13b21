"""FedAvgM: the average of the models moves a velocity."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.twins.local_sgd import local_sgd
from tunefree.testing import Array, Problem


def fedavgm(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    eta: float,
    s: float,
    mu: float,
    nesterov: bool,
) -> list[Array]:
    theta, v = problem.theta0, np.zeros(problem.d)
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        theta_K = [local_sgd(problem, i, t, theta, K, eta) for i in cohort]
        delta = theta - np.mean(theta_K, axis=0)
        v = mu * v + delta
        theta = theta - s * (delta + mu * v) if nesterov else theta - s * v
        thetas.append(theta)
    return thetas
