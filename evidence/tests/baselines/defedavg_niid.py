"""DeFedAvg-nIID: the plain mean of S delayed updates, whoever sent them and however late."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


def defedavg_niid(
    problem: Problem,
    uploads: Sequence[Sequence[tuple[int, int]]],
    K: int,
    eta: float,
    eta_g: float,
) -> list[Array]:
    """`uploads[t]` are the (client, step of its download) that aggregation t uses."""
    theta = [problem.theta0]
    for t, buffer in enumerate(uploads):
        delta = []
        for i, then in buffer:
            rng = problem.noises(i, then)
            theta_i = theta[then]
            for _ in range(K):
                theta_i = theta_i - eta * problem.grad(i, theta_i, problem.draw(rng))
            delta.append(theta[then] - theta_i)
        theta.append(theta[t] - eta_g * sum(delta, np.zeros(problem.d)) / len(buffer))
    return theta
