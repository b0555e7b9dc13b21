"""FedBuff: local SGD from the model of the download; a full buffer is averaged, stale ones less."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


def fedbuff(
    problem: Problem,
    uploads: Sequence[Sequence[tuple[int, int]]],
    K: int,
    eta: float,
    eta_g: float,
    weight: str,
    momentum: float = 0.0,
) -> list[Array]:
    """`uploads[t]` are the (client, step of its download) that aggregation t uses."""
    theta, velocity = [problem.theta0], np.zeros(problem.d)
    for t, buffer in enumerate(uploads):
        total = np.zeros(problem.d)
        for i, then in buffer:
            rng = problem.noises(i, then)
            y = theta[then]
            for _ in range(K):
                y = y - eta * problem.grad(i, y, problem.draw(rng))
            tau = t - then
            w = 1 / np.sqrt(1 + tau) if weight == "sqrt" else 1.0
            total = total + w * (theta[then] - y)
        velocity = momentum * velocity + total / len(buffer)
        theta.append(theta[t] - eta_g * velocity)
    return theta
