"""PAdaMFed-VR as Algorithm 2 prints it, with line 16 also as its proof needs it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


def padamfed_vr(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    momentum: str,
    start: str = "gradients",
) -> list[Array]:
    N, S, T = len(problem.b), len(cohorts[0]), len(cohorts)
    eta, gamma = 1 / (K * T), (S * K) ** (1 / 3) / T ** (2 / 3)  # Theorem 2
    beta = min(1.0, (S * K) ** (1 / 3) / T ** (2 / 3))

    theta = problem.theta0
    theta_prev = theta
    c_i = [np.zeros(problem.d) for _ in range(N)]
    if start == "gradients":  # 1
        for i in range(N):
            rng = problem.noises(i, -1)
            for _ in range(K):
                c_i[i] = c_i[i] + problem.grad(i, theta, problem.draw(rng)) / K
    c = sum(c_i, np.zeros(problem.d)) / N
    g = c

    thetas = [theta]
    for t in range(T):  # 2
        theta_K, c_i_old = {}, list(c_i)
        directions = np.zeros(problem.d)
        for i in cohorts[t]:  # 4
            rng = problem.noises(i, t)
            theta_i = theta
            c_i[i] = np.zeros(problem.d)  # 5
            for _ in range(K):  # 6
                xi = problem.draw(rng)
                grad, grad_prev = problem.grad(i, theta_i, xi), problem.grad(i, theta_prev, xi)
                g_i = grad + beta * (c - c_i_old[i]) + (1 - beta) * (g - grad_prev)  # 7
                theta_i = theta_i - eta * g_i / np.linalg.norm(g_i)  # 8
                c_i[i] = c_i[i] + grad / K  # 9
                directions = directions + g_i
            theta_K[i] = theta_i  # 11
        g_bar = sum((theta - theta_K[i] for i in cohorts[t]), np.zeros(problem.d)) / (eta * S * K)
        theta_prev, theta = theta, theta - gamma * g_bar  # 13, 14
        change = sum((c_i[i] - c_i_old[i] for i in cohorts[t]), np.zeros(problem.d))
        c_old = c
        c = c_old + change / N  # 15
        if momentum == "ema":
            g = beta * (change / S + c_old) + (1 - beta) * g  # 16 as listed
        else:
            g = directions / (S * K)  # 16 as Lemmas 6 and 7 use it
        thetas.append(theta)
    return thetas
