"""FedNova: normalised averaging; what a client sends is rounded to 32 bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


def fednova(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    eta: float,
    s: float,
    rho: float = 0.0,
    mu: float = 0.0,
    effective: str = "a",
) -> list[Array]:
    theta = problem.theta0
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        p = 1 / len(cohort)
        theta_K, a = {}, {}
        for i in cohort:
            rng, theta_i, u = problem.noises(i, t), theta, np.zeros(problem.d)
            for _ in range(K):
                u = rho * u + problem.grad(i, theta_i, problem.draw(rng)) + mu * (theta_i - theta)
                theta_i = theta_i - eta * u
            theta_K[i], a[i] = theta_i, float(K)
            if rho:
                a[i] = (K - rho * (1 - rho**K) / (1 - rho)) / (1 - rho)
            if mu:
                a[i] = (1 - (1 - eta * mu) ** K) / (eta * mu)
            a[i] = float(np.float32(a[i]))
        tau_eff = sum(p * (a[i] if effective == "a" else K) for i in cohort)
        direction = sum((p * (theta - theta_K[i]) / a[i] for i in cohort), np.zeros(problem.d))
        theta = theta - s * tau_eff * direction
        thetas.append(theta)
    return thetas
