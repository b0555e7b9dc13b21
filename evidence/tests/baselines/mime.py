"""Mime and MimeLite with momentum SGD: the server's momentum stays fixed all round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


def statistics(
    problem: Problem, i: int, theta: Array, K: int, rng: np.random.Generator, kind: str
) -> Array:
    """The full gradient, or the mean of K mini-batches."""
    if kind == "full":
        return problem.full_grad(i, theta)
    return sum(
        (problem.grad(i, theta, problem.draw(rng)) for _ in range(K)), np.zeros(problem.d)
    ) / float(K)


def mime(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    eta: float,
    beta: float,
    kind: str = "full",
) -> list[Array]:
    theta, m = problem.theta0, np.zeros(problem.d)
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        grads = [statistics(problem, i, theta, K, problem.noises(i, t, 0), kind) for i in cohort]
        g_bar = np.mean(grads, axis=0)
        theta_K = []
        for i in cohort:
            rng, theta_i = problem.noises(i, t, 1), theta
            for _ in range(K):
                xi = problem.draw(rng)
                g = problem.grad(i, theta_i, xi) - problem.grad(i, theta, xi) + g_bar
                theta_i = theta_i - eta * ((1 - beta) * g + beta * m)
            theta_K.append(theta_i)
        m = (1 - beta) * g_bar + beta * m
        theta = np.mean(theta_K, axis=0)
        thetas.append(theta)
    return thetas


def mime_lite(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    eta: float,
    beta: float,
    kind: str = "full",
) -> list[Array]:
    theta, m = problem.theta0, np.zeros(problem.d)
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        theta_K, grads = [], []
        for i in cohort:
            rng, theta_i = problem.noises(i, t), theta
            for _ in range(K):
                g = problem.grad(i, theta_i, problem.draw(rng))
                theta_i = theta_i - eta * ((1 - beta) * g + beta * m)
            theta_K.append(theta_i)
            grads.append(statistics(problem, i, theta, K, rng, kind))
        m = (1 - beta) * np.mean(grads, axis=0) + beta * m
        theta = np.mean(theta_K, axis=0)
        thetas.append(theta)
    return thetas
