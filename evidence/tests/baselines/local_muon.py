"""Local Muon and MuLoCo, with absolute models, and momenta that are averaged whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evidence.tests.baselines.muon import averaged, fresh, muon_client, starting_from
from tests.twins.polarfl import Shape
from tunefree.testing import Array, Problem


def local_muon(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    shapes: Sequence[Shape],
    momentum: str,
    eta: float,
    mu: float,
    rho: float,
    s: float,
    clip: float = 10,
    weight_decay: float = 0,
) -> list[Array]:
    theta, d = problem.theta0, problem.d
    kept = [fresh(d, shapes) for _ in problem.b]
    shared = fresh(d, shapes)
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        theta_K, ends = [], []
        for i in cohort:
            memory = kept[i] if momentum == "kept" else fresh(d, shapes)
            if momentum == "aggregated":
                memory = starting_from(shared, d, shapes)
            given = (eta, mu, rho)
            theta_K.append(
                muon_client(
                    problem,
                    shapes,
                    i,
                    t,
                    theta,
                    memory,
                    K,
                    *given,
                    clip=clip,
                    weight_decay=weight_decay,
                )
            )
            ends.append(memory)
        shared = averaged(ends)
        theta = theta + s * (np.mean(theta_K, axis=0) - theta)
        thetas.append(theta)
    return thetas


def muloco(
    problem: Problem,
    cohorts: Sequence[Sequence[int]],
    K: int,
    shapes: Sequence[Shape],
    eta: float,
    mu: float,
    rho: float,
    lr_out: float,
    mu_out: float,
) -> list[Array]:
    theta, u = problem.theta0, np.zeros(problem.d)
    kept = [fresh(problem.d, shapes) for _ in problem.b]
    thetas = [theta]
    for t, cohort in enumerate(cohorts):
        theta_K = [
            muon_client(problem, shapes, i, t, theta, kept[i], K, eta, mu, rho) for i in cohort
        ]
        d = theta - np.mean(theta_K, axis=0)
        u = mu_out * u + lr_out * d
        theta = theta - mu_out * u - lr_out * d
        thetas.append(theta)
    return thetas
