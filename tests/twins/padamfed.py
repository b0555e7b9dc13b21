"""PAdaMFed as Algorithm 1 prints it; numbers are the page's lines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


def padamfed(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    start: str = "gradients",
    own_K: Sequence[int] = (),
) -> list[Array]:
    N, S, T = len(problem.b), len(cohorts[0]), len(cohorts)
    K_i = own_K or [K] * N
    eta, gamma = 1 / (K * np.sqrt(T)), (S * K) ** (1 / 4) / T ** (3 / 4)  # Theorem 1
    beta = min(1.0, np.sqrt(S * K / T))

    theta = problem.theta0
    c_i = [np.zeros(problem.d) for _ in range(N)]
    if start == "gradients":  # 1
        for i in range(N):
            rng = problem.noises(i, -1)
            for _ in range(K_i[i]):
                c_i[i] = c_i[i] + problem.grad(i, theta, problem.draw(rng)) / K_i[i]
    c = sum(c_i, np.zeros(problem.d)) / N
    g = c

    thetas = [theta]
    for t in range(T):  # 2
        theta_K, c_i_old = {}, list(c_i)
        for i in cohorts[t]:  # 4
            rng = problem.noises(i, t)
            theta_i = theta  # 5
            total = np.zeros(problem.d)
            for _ in range(K_i[i]):  # 6
                grad = problem.grad(i, theta_i, problem.draw(rng))
                g_i = beta * (grad - c_i_old[i] + c) + (1 - beta) * g  # 7
                theta_i = theta_i - eta * g_i / np.linalg.norm(g_i)  # 8
                total = total + grad
            c_i[i] = total / K_i[i]  # 10
            theta_K[i] = theta_i  # 11
        moves = ((theta - theta_K[i]) / (eta * K_i[i]) for i in cohorts[t])
        g_bar = sum(moves, np.zeros(problem.d)) / S
        theta = theta - gamma * g_bar  # 13, 14
        change = sum((c_i[i] - c_i_old[i] for i in cohorts[t]), np.zeros(problem.d))
        c_old = c
        c = c_old + change / N  # 15
        g = beta * (change / S + c_old) + (1 - beta) * g  # 16
        thetas.append(theta)
    return thetas
