"""SCAFCOM: SCALLION's loop with local momentum, for contractive compressors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.twins.compression import Naive
from tunefree.testing import Array, Problem


def scafcom(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    C: Naive,
    eta_l: float,
    eta_g: float,
    beta: float,
    start: str = "zero",
) -> list[Array]:
    N, S = len(problem.b), len(cohorts[0])
    theta = problem.theta0
    v = [np.zeros(problem.d) for _ in range(N)]
    if start == "gradients":
        for i in range(N):
            rng = problem.noises(i, -1)
            for _ in range(K):
                v[i] = v[i] + problem.grad(i, theta, problem.draw(rng)) / K
    c_i = list(v)
    c = sum(c_i, np.zeros(problem.d)) / N
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        sent = {}
        for i in cohort:
            rng = problem.noises(i, t)
            theta_i = theta
            for _ in range(K):
                grad = problem.grad(i, theta_i, problem.draw(rng))
                theta_i = theta_i - eta_l * (grad - c_i[i] + c)
            v[i] = (1 - beta) * v[i] + beta * ((theta - theta_i) / (eta_l * K) + c_i[i] - c)
            sent[i] = C(v[i] - c_i[i], rng)
            c_i[i] = c_i[i] + sent[i]
        total = sum(sent.values(), np.zeros(problem.d))
        theta = theta - eta_g * eta_l * K * (total / S + c)
        c = c + total / N
        thetas.append(theta)
    return thetas
