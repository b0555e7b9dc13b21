"""Fed-EF-SGD: local SGD with error feedback on the client; the server takes a plain step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.twins.compression import Naive
from tunefree.testing import Array, Problem


def fed_ef_sgd(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    C: Naive,
    eta_l: float,
    eta_s: float,
) -> list[Array]:
    S = len(cohorts[0])
    theta, zero = problem.theta0, np.zeros(problem.d)
    e = [zero for _ in problem.b]
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        p = {}
        for i in cohort:
            rng = problem.noises(i, t)
            theta_i = theta
            for _ in range(K):
                theta_i = theta_i - eta_l * problem.grad(i, theta_i, problem.draw(rng))
            u = (theta - theta_i) + e[i]
            p[i] = C(u, rng)
            e[i] = u - p[i]
        D = sum(p.values(), zero) / S
        theta = theta - eta_s * D
        thetas.append(theta)
    return thetas
