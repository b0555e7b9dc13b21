"""SCAFFOLD as its Algorithm 1 prints it, options I and II."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


def scaffold(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    eta: float,
    s: float,
    option: str,
    start: str = "zero",
    own_K: Sequence[int] = (),
) -> list[Array]:
    N, S = len(problem.b), len(cohorts[0])
    K_i = own_K or [K] * N
    theta = problem.theta0
    c_i = [np.zeros(problem.d) for _ in range(N)]
    if start == "gradients":
        for i in range(N):
            rng = problem.noises(i, -1)
            for _ in range(K_i[i]):
                c_i[i] = c_i[i] + problem.grad(i, theta, problem.draw(rng)) / K_i[i]
    c = sum(c_i, np.zeros(problem.d)) / N

    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        theta_K, c_i_new = {}, list(c_i)
        for i in cohort:
            rng = problem.noises(i, t)
            theta_i = theta
            for _ in range(K_i[i]):
                grad = problem.grad(i, theta_i, problem.draw(rng))
                theta_i = theta_i - eta * (grad - c_i[i] + c)
            theta_K[i] = theta_i
            if option == "I":
                c_i_new[i] = problem.full_grad(i, theta)
            else:
                c_i_new[i] = c_i[i] - c + (theta - theta_i) / (K_i[i] * eta)
        moved = sum((theta_K[i] - theta for i in cohort), np.zeros(problem.d)) / S
        change = sum((c_i_new[i] - c_i[i] for i in cohort), np.zeros(problem.d)) / N
        theta, c, c_i = theta + s * moved, c + change, c_i_new
        thetas.append(theta)
    return thetas
