"""FedSMOO: dynamic regularisation with a sharpness-aware gradient."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


def fedsmoo(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    eta: float,
    alpha: float,
    rho: float,
) -> list[Array]:
    N, d = problem.b.shape
    theta, h, s = problem.theta0, np.zeros(d), np.zeros(d)
    h_i, mu = np.zeros((N, d)), np.zeros((N, d))
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        theta_K = []
        for i in cohort:
            rng, theta_i = problem.noises(i, t), theta
            for _ in range(K):
                xi = problem.draw(rng)
                p = problem.grad(i, theta_i, xi) - mu[i] - s
                e = rho * p / np.linalg.norm(p)
                mu[i] = mu[i] + e - s
                grad = problem.grad(i, theta_i + e, xi)
                theta_i = theta_i - eta * (grad - h_i[i] + alpha * (theta_i - theta))
            h_i[i] = h_i[i] - alpha * (theta_i - theta)
            theta_K.append(theta_i)
        h = h - alpha / N * sum((theta_i - theta for theta_i in theta_K), np.zeros(d))
        theta = np.mean(theta_K, axis=0) - h / alpha
        q = np.mean([mu[i] for i in cohort], axis=0)
        s = rho * q / np.linalg.norm(q)
        thetas.append(theta)
    return thetas
