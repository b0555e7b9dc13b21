"""LOCAL-SGD-C: error feedback on both sides; with all clients nobody ever sends a whole model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.twins.compression import Naive
from tunefree.testing import Array, Problem


def local_sgd_c(
    problem: Problem, cohorts: Sequence[Sequence[int]], K: int, C: Naive, eta: float
) -> list[Array]:
    """C must be deterministic: the server's own randomness has no page."""
    N, S = len(problem.b), len(cohorts[0])
    everyone = S == N
    nobody = np.random.default_rng(0)
    theta = problem.theta0
    copies = [theta for _ in range(N)]
    e = [np.zeros(problem.d) for _ in range(N)]
    E = np.zeros(problem.d)
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        p = {}
        for i in cohort:
            rng = problem.noises(i, t)
            if not everyone:
                copies[i] = theta  # it may have been away
            theta_i = copies[i]
            for _ in range(K):
                theta_i = theta_i - eta * problem.grad(i, theta_i, problem.draw(rng))
            u = (copies[i] - theta_i) + e[i]
            p[i] = C(u, rng)
            e[i] = u - p[i]
        w = sum(p.values(), np.zeros(problem.d)) / S + E
        P = C(w, nobody)
        E = w - P
        theta = theta - P
        copies = [copy - P for copy in copies]
        thetas.append(theta)
    return thetas
