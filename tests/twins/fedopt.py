"""FedAdagrad, FedAdam and FedYogi, with the paper's sign: deltas point uphill."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.twins.local_sgd import local_sgd
from tunefree.testing import Array, Problem


def fedopt(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    rule: str,
    eta_l: float,
    eta_s: float,
    tau: float,
    beta1: float,
    beta2: float = 0.99,
) -> list[Array]:
    theta, m, v = problem.theta0, np.zeros(problem.d), np.full(problem.d, tau**2)
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        D = np.mean([local_sgd(problem, i, t, theta, K, eta_l) - theta for i in cohort], axis=0)
        m = beta1 * m + (1 - beta1) * D
        if rule == "adagrad":
            v = v + D**2
        elif rule == "adam":
            v = beta2 * v + (1 - beta2) * D**2
        else:
            v = v - (1 - beta2) * D**2 * np.sign(v - D**2)
        theta = theta + eta_s * m / (np.sqrt(v) + tau)
        thetas.append(theta)
    return thetas
