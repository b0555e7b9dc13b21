"""FAFED: adaptive local steps along STORM momentum; models and moments are averaged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


def fafed(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    eta: float,
    alpha: float,
    beta: float,
    rho: float,
    start: str = "gradients",
) -> list[Array]:
    """All clients keep their previous iterate; if some are away, no client does."""
    N = len(problem.b)
    theta, m, v = problem.theta0, np.zeros(problem.d), np.zeros(problem.d)
    prev = [theta for _ in range(N)]
    if start == "gradients":
        g = [problem.grad(i, theta, problem.draw(problem.noises(i, -1))) for i in range(N)]
        m, v = np.mean(g, axis=0), np.mean([g_i**2 for g_i in g], axis=0)
        theta = theta - eta * m
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        A = np.sqrt(v) + rho
        models, momenta, squares = [], [], []
        for i in cohort:
            rng, theta_i, m_i, v_i = problem.noises(i, t), theta, m, v
            if len(cohort) < N:
                prev[i] = theta
            for _ in range(K):
                xi = problem.draw(rng)
                grad, grad_prev = problem.grad(i, theta_i, xi), problem.grad(i, prev[i], xi)
                m_i = grad + (1 - alpha) * (m_i - grad_prev)
                v_i = beta * v_i + (1 - beta) * grad**2
                prev[i] = theta_i
                theta_i = theta_i - eta * m_i / A
            models.append(theta_i)
            momenta.append(m_i)
            squares.append(v_i)
        theta, m, v = (np.mean(all_, axis=0) for all_ in (models, momenta, squares))
        thetas.append(theta)
    return thetas
