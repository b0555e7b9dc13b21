"""MasFL as Algorithms 1 and 2 print it; numbers are the lines of 1, c-numbers those of 2."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


def masfl(
    problem: Problem,
    uploads: Sequence[Sequence[tuple[int, int]]],
    K: int,
    eta: float,
    gamma: float,
    beta: float,
    start: str = "gradients",
) -> list[Array]:
    """`uploads[t]` are the (client, step of its download) that aggregation t uses."""
    N, S, T = len(problem.b), len(uploads[0]), len(uploads)
    theta, c, g = [problem.theta0], [np.zeros(problem.d)], [np.zeros(problem.d)]
    c_i = [np.zeros(problem.d) for _ in range(N)]
    if start == "gradients":  # 1
        for i in range(N):
            rng = problem.noises(i, -1)
            for _ in range(K):
                c_i[i] = c_i[i] + problem.grad(i, theta[0], problem.draw(rng)) / K
        c[0] = sum(c_i, np.zeros(problem.d)) / N
        g[0] = c[0]

    for t in range(T):  # 2
        c_i_new = list(c_i)
        for i, then in uploads[t]:  # 3; then = t - tau
            rng = problem.noises(i, then)
            theta_i, total = theta[then], np.zeros(problem.d)  # c1
            for _ in range(K):  # c2
                grad = problem.grad(i, theta_i, problem.draw(rng))
                g_i = beta * (grad - c_i[i] + c[then]) + (1 - beta) * g[then]  # c3
                theta_i = theta_i - eta * g_i  # c4
                total = total + grad
            c_i_new[i] = total / K  # c6, 4
        change = sum((c_i_new[i] - c_i[i] for i, _ in uploads[t]), np.zeros(problem.d))
        g.append(beta * (change / S + c[t]) + (1 - beta) * g[t])  # 5
        theta.append(theta[t] - gamma * g[t + 1])  # 6
        c.append(c[t] + change / N)  # 7
        c_i = c_i_new
    return theta
