"""FedMuon of Liu et al., with absolute models and a table of momenta."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evidence.tests.baselines.muon import averaged, fresh, muon_client, starting_from
from tests.twins.polarfl import Shape
from tunefree.testing import Array, Problem


def fedmuon_liu(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    shapes: Sequence[Shape],
    eta: float,
    mu: float,
    rho: float,
    alpha: float,
    weight_decay: float = 0,
) -> list[Array]:
    theta, d = problem.theta0, problem.d
    M_bar, delta_g = fresh(d, shapes), np.zeros(d)
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        theta_K, ends = [], []
        for i in cohort:
            memory = starting_from(M_bar, d, shapes)
            theta_i = muon_client(
                *(problem, shapes, i, t, theta, memory, K, eta, mu, rho),
                weight_decay=weight_decay,
                nesterov=False,
                alpha=alpha,
                pull=delta_g,
            )
            theta_K.append(theta_i)
            ends.append(memory)
        moved = np.mean(theta_K, axis=0) - theta
        theta = theta + moved
        delta_g = -moved / (K * eta)
        M_bar = averaged(ends)
        thetas.append(theta)
    return thetas
