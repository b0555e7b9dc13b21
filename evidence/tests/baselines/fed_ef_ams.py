"""Fed-EF-AMS: local SGD with error feedback on the client; the server runs AMSGrad."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.twins.compression import Naive
from tunefree.testing import Array, Problem


def fed_ef_ams(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    C: Naive,
    eta_l: float,
    eta_s: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
) -> list[Array]:
    S = len(cohorts[0])
    theta, zero = problem.theta0, np.zeros(problem.d)
    e = [zero for _ in problem.b]
    m, v, v_hat = zero, zero, zero
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        p = {}
        for i in cohort:
            rng = problem.noises(i, t)
            theta_i = theta
            for _ in range(K):
                theta_i = theta_i - eta_l * problem.grad(i, theta_i, problem.draw(rng))
            u = (theta - theta_i) + e[i]
            p[i] = C(u, rng)
            e[i] = u - p[i]
        D = sum(p.values(), zero) / S
        m = beta1 * m + (1 - beta1) * D
        v = beta2 * v + (1 - beta2) * D**2
        v_hat = np.maximum(v_hat, v)
        theta = theta - eta_s * m / np.sqrt(v_hat + eps)
        thetas.append(theta)
    return thetas
