"""Delta-SGD: local steps that follow the smoothness found along the way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefree.testing import Array, Problem


def delta_sgd(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    gamma: float,
    delta: float,
    eta_0: float,
    same_batch: bool = True,
) -> list[Array]:
    theta = problem.theta0
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        theta_K = []
        for i in cohort:
            rng = problem.noises(i, t)
            xi = [problem.draw(rng) for _ in range(K)]
            x, eta, r = [theta], [eta_0], [1.0]
            for k in range(1, K + 1):
                x.append(x[k - 1] - eta[k - 1] * problem.grad(i, x[k - 1], xi[k - 1]))
                if k == K:
                    break  # η_K would be the step of a further batch
                new = problem.grad(i, x[k], xi[k])
                old = problem.grad(i, x[k - 1], xi[k] if same_batch else xi[k - 1])
                distance = float(np.linalg.norm(x[k] - x[k - 1]))
                smooth = gamma * distance / (2 * float(np.linalg.norm(new - old)))
                eta.append(min(smooth, (1 + delta * r[k - 1]) ** 0.5 * eta[k - 1]))
                r.append(eta[k] / eta[k - 1])
            theta_K.append(x[K])
        theta = np.mean(theta_K, axis=0)
        thetas.append(theta)
    return thetas
