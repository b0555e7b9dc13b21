"""ParFreFL as Algorithm 1 prints it; numbers are the page's lines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


def parfrefl(
    problem: Problem, cohorts: Sequence[Sequence[int]], K: int, start: str = "gradients"
) -> list[Array]:
    N, S, T = len(problem.b), len(cohorts[0]), len(cohorts)
    eta, gamma = 1 / (K * (S * K * T) ** (1 / 4)), (S * K) ** (1 / 4) / T ** (3 / 4)
    beta = min(1.0, np.sqrt(S * K / T))

    theta = problem.theta0
    m = [np.zeros(problem.d) for _ in range(N)]
    if start == "gradients":  # 1
        for i in range(N):
            rng = problem.noises(i, -1)
            for _ in range(K):
                m[i] = m[i] + problem.grad(i, theta, problem.draw(rng)) / K
    c_i = list(m)
    c = sum(c_i, np.zeros(problem.d)) / N

    thetas = [theta]
    for t in range(T):  # 2
        for i in cohorts[t]:  # 4
            rng = problem.noises(i, t)
            theta_i = theta  # 5
            total = np.zeros(problem.d)
            for _ in range(K):  # 6
                m_k = (1 - beta) * m[i] + beta * problem.grad(i, theta_i, problem.draw(rng))  # 7
                theta_i = theta_i - eta * m_k / np.linalg.norm(m_k)  # 8
                total = total + m_k
            m[i] = total / K  # 10
        c_i_old = list(c_i)
        for i in cohorts[t]:
            c_i[i] = m[i]  # 12
        change = sum((c_i[i] - c_i_old[i] for i in cohorts[t]), np.zeros(problem.d))
        c_old = c
        c = c_old + change / N  # 13
        g = change / S + c_old  # 14
        theta = theta - gamma * g / np.linalg.norm(g)  # 15
        thetas.append(theta)
    return thetas
