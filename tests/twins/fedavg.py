"""FedAvg: local SGD and model averaging; s = 1 is the page's average of models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


def fedavg(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    eta: float,
    s: float,
    sizes: Sequence[int] | None = None,
    own_K: Sequence[int] = (),
) -> list[Array]:
    """`sizes` are the clients' sample counts when models are weighted by them.

    `own_K` are their numbers of steps where these differ.
    """
    weights = [1] * len(problem.b) if sizes is None else sizes
    theta = problem.theta0
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        theta_K = {}
        for i in cohort:
            rng = problem.noises(i, t)
            theta_i = theta
            for _ in range(own_K[i] if own_K else K):
                theta_i = theta_i - eta * problem.grad(i, theta_i, problem.draw(rng))
            theta_K[i] = theta_i
        total = sum(weights[i] for i in cohort)
        average = sum((weights[i] * theta_K[i] for i in cohort), np.zeros(problem.d)) / total
        theta = (1 - s) * theta + s * average
        thetas.append(theta)
    return thetas
