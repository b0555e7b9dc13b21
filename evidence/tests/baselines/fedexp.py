"""FedExP: the server steps further where the clients disagree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.twins.local_sgd import local_sgd
from tunefree.testing import Array, Problem


def fedexp(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    eta: float,
    epsilon: float,
    average: bool = True,
) -> list[Array]:
    """What is evaluated after each round."""
    w = [problem.theta0]
    for t, cohort in enumerate(cohorts):
        M = len(cohort)
        deltas = [w[t] - local_sgd(problem, i, t, w[t], K, eta) for i in cohort]
        delta = sum(deltas, np.zeros(problem.d)) / M
        squares = sum(float(d @ d) for d in deltas)
        eta_g = max(1.0, squares / (2 * M * (float(delta @ delta) + epsilon)))
        w.append(w[t] - eta_g * delta)
    if not average:
        return w
    return [w[0], *((w[t] + w[t + 1]) / 2 for t in range(len(cohorts)))]
