"""FedAMS of Wang, Lin and Chen: AMSGrad on the server, deltas pointing uphill."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.twins.local_sgd import local_sgd
from tunefree.testing import Array, Problem


def fedams_server(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    eta_l: float,
    eta_s: float,
    eps: float,
    beta1: float,
    beta2: float,
    option: int,
    bias_correction: bool,
) -> list[Array]:
    theta, m, v = problem.theta0, np.zeros(problem.d), np.zeros(problem.d)
    v_hat = np.full(problem.d, eps)
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        D = np.mean([local_sgd(problem, i, t, theta, K, eta_l) - theta for i in cohort], axis=0)
        m = beta1 * m + (1 - beta1) * D
        v = beta2 * v + (1 - beta2) * D**2
        m_t, v_t = m, v
        if bias_correction:
            m_t, v_t = m / (1 - beta1 ** (t + 1)), v / (1 - beta2 ** (t + 1))
        if option == 1:
            v_hat = np.maximum(np.maximum(v_hat, v_t), eps)
            theta = theta + eta_s * m_t / np.sqrt(v_hat)
        else:
            v_hat = np.maximum(v_hat, v_t)
            theta = theta + eta_s * m_t / (np.sqrt(v_hat) + eps)
        thetas.append(theta)
    return thetas
