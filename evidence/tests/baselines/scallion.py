"""SCALLION: SCAFFOLD with a scaled and compressed increment of the control variate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.twins.compression import Naive
from tunefree.testing import Array, Problem


def scallion(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    C: Naive,
    eta_l: float,
    eta_g: float,
    alpha: float,
) -> list[Array]:
    N, S = len(problem.b), len(cohorts[0])
    theta, c = problem.theta0, np.zeros(problem.d)
    c_i = [np.zeros(problem.d) for _ in range(N)]
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        sent = {}
        for i in cohort:
            rng = problem.noises(i, t)
            theta_i = theta
            for _ in range(K):
                grad = problem.grad(i, theta_i, problem.draw(rng))
                theta_i = theta_i - eta_l * (grad - c_i[i] + c)
            delta = alpha * ((theta - theta_i) / (eta_l * K) - c)
            sent[i] = C(delta, rng)
            c_i[i] = c_i[i] + sent[i]
        total = sum(sent.values(), np.zeros(problem.d))
        theta = theta - eta_g * eta_l * K * (total / S + c)
        c = c + total / N
        thetas.append(theta)
    return thetas
