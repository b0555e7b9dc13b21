"""Schedule-free AdamW on every client of FedAvg, with its three sequences as they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


def local_schedule_free(
    problem: Problem, cohorts: Sequence[Sequence[int]], K: int, eta: float = 0.0025
) -> list[Array]:
    N, d = problem.b.shape
    beta1, beta2, epsilon = 0.9, 0.999, 1e-8
    v, k = np.zeros((N, d)), [0] * N
    theta = problem.theta0
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        x_K = []
        for i in cohort:
            rng = problem.noises(i, t)
            x, y, z, weights = theta, theta, theta, []
            for _ in range(K):
                grad = problem.grad(i, y, problem.draw(rng))
                k[i] += 1
                v[i] = beta2 * v[i] + (1 - beta2) * grad**2
                eta_k = eta * np.sqrt(1 - beta2 ** k[i])
                z = z - eta_k * grad / (np.sqrt(v[i]) + epsilon)
                weights.append(eta_k**2)
                c = weights[-1] / sum(weights)
                x = (1 - c) * x + c * z
                y = beta1 * x + (1 - beta1) * z
            x_K.append(x)
        theta = np.mean(x_K, axis=0)
        thetas.append(theta)
    return thetas
