"""FedMuon of Takezawa et al. as Algorithm 1 prints it: M_i and C_i in tables of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evidence.tests.baselines.muon import lmo
from tests.twins.polarfl import Shape, pieces, whole
from tunefree.testing import Array, Problem


def fedmuon(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    shapes: Sequence[Shape],
    eta: float,
    alpha: float,
    average: str = "all",
) -> list[Array]:
    n, S = len(problem.b), len(cohorts[0])
    X, C = problem.theta0, np.zeros(problem.d)
    M = [np.zeros(problem.d) for _ in range(n)]
    C_i = [np.zeros(problem.d) for _ in range(n)]
    thetas = [X]
    for t, cohort in enumerate(cohorts):
        X_K, change = [], np.zeros(problem.d)
        for i in cohort:
            rng, X_i = problem.noises(i, t), X
            for _ in range(K):
                M[i] = (1 - alpha) * M[i] + alpha * problem.grad(i, X_i, problem.draw(rng))
                corrected = pieces(M[i] - C_i[i] + C, shapes)
                X_i = X_i - eta * whole([lmo(u) for u in corrected])
            X_K.append(X_i)
            change = change + M[i] - C_i[i]
            C_i[i] = M[i]
        C = C + change / n
        total = sum(X_K, np.zeros(problem.d))
        X = (n - S) / n * X + total / n if average == "all" else total / S
        thetas.append(X)
    return thetas
