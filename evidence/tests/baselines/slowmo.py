"""SlowMo: a slow momentum over rounds, in units of the local step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.twins.local_sgd import local_sgd
from tunefree.testing import Array, Problem


def slowmo(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    eta: float,
    alpha: float,
    beta: float,
) -> list[Array]:
    theta, u = problem.theta0, np.zeros(problem.d)
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        average = np.mean([local_sgd(problem, i, t, theta, K, eta) for i in cohort], axis=0)
        u = beta * u + (theta - average) / eta
        theta = theta - alpha * eta * u
        thetas.append(theta)
    return thetas
