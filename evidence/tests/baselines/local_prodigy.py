"""Prodigy on every client of FedAvg; r and z are not divided by d_0 here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


def local_prodigy(
    problem: Problem, cohorts: Sequence[Sequence[int]], K: int, d_0: float = 1e-6
) -> list[Array]:
    N, d = problem.b.shape
    beta1, beta2, epsilon, root = 0.9, 0.999, 1e-8, np.sqrt(0.999)
    v, far = np.zeros((N, d)), np.full(N, d_0)
    theta = problem.theta0
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        theta_K = []
        for i in cohort:
            rng, theta_i = problem.noises(i, t), theta
            m, z, r = np.zeros(d), np.zeros(d), 0.0
            for _ in range(K):
                grad = problem.grad(i, theta_i, problem.draw(rng))
                m = beta1 * m + (1 - beta1) * far[i] * grad
                v[i] = beta2 * v[i] + (1 - beta2) * far[i] ** 2 * grad**2
                r = root * r + far[i] ** 2 * np.dot(grad, theta - theta_i)
                z = root * z + far[i] ** 2 * grad
                theta_i = theta_i - far[i] * m / (np.sqrt(v[i]) + far[i] * epsilon)
                far[i] = max(far[i], r / np.sum(np.abs(z)))
            theta_K.append(theta_i)
        theta = np.mean(theta_K, axis=0)
        thetas.append(theta)
    return thetas
