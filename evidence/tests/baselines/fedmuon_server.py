"""FedMuon (server): local SGD, then Muon on the mean displacement and Adam on its vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evidence.tests.baselines.muon import muon
from tests.twins.local_sgd import local_sgd
from tests.twins.polarfl import Shape, pieces, whole
from tunefree.testing import Array, Problem


def fedmuon_server(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    shapes: Sequence[Shape],
    eta: float,
    eta_s: float,
    mu: float,
    rho: float,
) -> list[Array]:
    theta = problem.theta0
    M = pieces(np.zeros(problem.d), shapes)
    v = pieces(np.zeros(problem.d), shapes)
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        theta_K = [local_sgd(problem, i, t, theta, K, eta) for i in cohort]
        new = []
        mean = pieces(theta - np.mean(theta_K, axis=0), shapes)
        for at, (x, D) in enumerate(zip(pieces(theta, shapes), mean, strict=True)):
            M[at] = mu * M[at] + (1 - mu) * D
            v[at] = 0.99 * v[at] + 0.01 * D**2
            if x.ndim > 1:
                new.append(x - eta_s * muon(mu * M[at] + (1 - mu) * D))
            else:
                new.append(x - rho * eta_s * M[at] / (np.sqrt(v[at]) + 1e-6))
        theta = whole(new)
        thetas.append(theta)
    return thetas
