"""FedAMS of Chen, Li and Li: local AMSGrad under one shared denominator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


def fedams_local(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    eta: float,
    beta1: float,
    beta2: float,
    floor: float = 1e-6,
) -> list[Array]:
    N = len(problem.b)
    theta, v_hat = problem.theta0, np.full(problem.d, floor)
    m = [np.zeros(problem.d) for _ in range(N)]
    v = [np.zeros(problem.d) for _ in range(N)]
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        theta_K = {}
        for i in cohort:
            rng, theta_i = problem.noises(i, t), theta
            for _ in range(K):
                grad = problem.grad(i, theta_i, problem.draw(rng))
                m[i] = beta1 * m[i] + (1 - beta1) * grad
                v[i] = beta2 * v[i] + (1 - beta2) * grad**2
                theta_i = theta_i - eta * m[i] / np.sqrt(v_hat)
            theta_K[i] = theta_i
        theta = np.mean([theta_K[i] for i in cohort], axis=0)
        v_hat = np.maximum(v_hat, np.mean([v[i] for i in cohort], axis=0))
        thetas.append(theta)
    return thetas
