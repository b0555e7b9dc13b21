"""FADAS: AMSGrad on the server over buffered updates; the late ones may shorten the step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


def fadas(
    problem: Problem,
    uploads: Sequence[Sequence[tuple[int, int]]],
    K: int,
    eta_l: float,
    eta: float,
    delay: str = "plain",
    rule: str = "code",
    tau_c: float = 1,
    beta1: float = 0.9,
    beta2: float = 0.99,
    eps: float = 1e-8,
) -> list[Array]:
    """`uploads[t]` are the (client, step of its download) that aggregation t uses."""
    x, zero = [problem.theta0], np.zeros(problem.d)
    m, v, v_hat = zero, zero, zero
    for t, buffer in enumerate(uploads):
        delta = zero  # an ascent direction here, as the paper has it
        for i, then in buffer:
            rng = problem.noises(i, then)
            x_i = x[then]
            for _ in range(K):
                x_i = x_i - eta_l * problem.grad(i, x_i, problem.draw(rng))
            delta = delta + (x_i - x[then]) / len(buffer)
        m = beta1 * m + (1 - beta1) * delta
        v = beta2 * v + (1 - beta2) * delta**2
        v_hat = np.maximum(v_hat, v)
        tau_max = max(t - then for _, then in buffer)
        eta_t = eta
        if delay == "adaptive" and tau_max > tau_c:
            eta_t = eta / tau_max if rule == "code" else min(eta, 1 / tau_max)
        x.append(x[t] + eta_t * m / (np.sqrt(v_hat) + eps))
    return x
