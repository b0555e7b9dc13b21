"""CA2FL as published: the server stores the last update of each of the N clients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


def ca2fl(
    problem: Problem,
    uploads: Sequence[Sequence[tuple[int, int]]],
    K: int,
    eta: float,
    eta_g: float,
) -> list[Array]:
    """`uploads[t]` are the (client, step of its download) that aggregation t uses."""
    N, zero = len(problem.b), np.zeros(problem.d)
    theta, cache = [problem.theta0], [zero for _ in range(N)]
    for t, buffer in enumerate(uploads):
        h = sum(cache, zero) / N  # the mean over all clients, including those that never sent any
        delta = {}
        for i, then in buffer:
            rng = problem.noises(i, then)
            x = theta[then]
            for _ in range(K):
                x = x - eta * problem.grad(i, x, problem.draw(rng))
            delta[i] = theta[then] - x
        v = h + sum((delta[i] - cache[i] for i in delta), zero) / len(buffer)
        theta.append(theta[t] - eta_g * v)
        for i in delta:
            cache[i] = delta[i]
    return theta
