"""FedAdamW, and plain local AdamW with moments that are kept or start again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tunefree.testing import Array, Problem


def fedadamw(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    sizes: Sequence[int],
    eta: float,
    decay: float,
    alpha: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
) -> list[Array]:
    theta, g = problem.theta0, np.zeros(problem.d)
    u = [0.0] * len(sizes)
    edges = np.cumsum([0, *sizes])
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        theta_K, u_K = [], []
        for i in cohort:
            rng, theta_i = problem.noises(i, t), theta
            m, v = np.zeros(problem.d), np.repeat(u, sizes)
            for k in range(1, K + 1):
                grad = problem.grad(i, theta_i, problem.draw(rng))
                m = beta1 * m + (1 - beta1) * grad
                v = beta2 * v + (1 - beta2) * grad**2
                m_hat, v_hat = m / (1 - beta1**k), v / (1 - beta2 ** (t * K + k))
                adam = m_hat / (np.sqrt(v_hat) + epsilon)
                theta_i = theta_i - eta * (adam + alpha * g + decay * theta_i)
            theta_K.append(theta_i)
            u_K.append([as_sent(v[a:b].mean()) for a, b in pairwise(edges)])
        theta_new = np.mean(theta_K, axis=0)
        g = (theta - theta_new) / (eta * K)
        u = [as_sent(number) for number in np.mean(u_K, axis=0)]
        theta = theta_new
        thetas.append(theta)
    return thetas


def as_sent(number: float) -> float:
    """A number of 32 bits."""
    return float(np.float32(number))


def local_adamw(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    eta: float,
    decay: float,
    kept: bool,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
) -> list[Array]:
    theta, N = problem.theta0, len(problem.b)
    m, v = np.zeros((N, problem.d)), np.zeros((N, problem.d))
    k = [0] * N
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        theta_K = []
        for i in cohort:
            rng, theta_i = problem.noises(i, t), theta
            if not kept:
                m[i], v[i], k[i] = 0, 0, 0
            for _ in range(K):
                grad = problem.grad(i, theta_i, problem.draw(rng))
                k[i] += 1
                m[i] = beta1 * m[i] + (1 - beta1) * grad
                v[i] = beta2 * v[i] + (1 - beta2) * grad**2
                m_hat, v_hat = m[i] / (1 - beta1 ** k[i]), v[i] / (1 - beta2 ** k[i])
                adam = m_hat / (np.sqrt(v_hat) + epsilon)
                theta_i = theta_i - eta * (adam + decay * theta_i)
            theta_K.append(theta_i)
        theta = np.mean(theta_K, axis=0)
        thetas.append(theta)
    return thetas
