"""Heterogeneous quadratics with a known optimum: which methods reach it, and which cannot."""

from __future__ import annotations

import numpy as np
import pytest

from tests.problem import simulate
from tunefree.core import Algorithm, System, bind
from tunefree.methods.fedavg import FedAvg
from tunefree.methods.registry import build
from tunefree.methods.scaffold import Scaffold
from tunefree.testing import Array, Problem, quadratic

SEEDS = range(5)


def mean_gradient(problem: Problem, thetas: list[Array]) -> float:
    """(1/T) Σ ||∇f(θ^t)||, the theorems' measure."""
    A, Ab = problem.A.mean(axis=0), np.einsum("nij,nj->i", problem.A, problem.b) / len(problem.b)
    return float(np.linalg.norm(np.array(thetas[:-1]) @ A - Ab, axis=1).mean())


def over_seeds(name: str, options: dict[str, object], T: int) -> Array:
    scores = []
    for seed in SEEDS:
        problem = quadratic(N=6, seed=seed)
        algo = build(name, System(N=6, S=2, K=2, T=T), options)
        scores.append(mean_gradient(problem, simulate(algo, problem).thetas))
    return np.array(scores)


@pytest.mark.parametrize(
    ("name", "options", "ratio"),
    [
        ("padamfed", {}, 16 ** (-1 / 4)),
        ("parfrefl", {}, 16 ** (-1 / 4)),
        ("padamfed_vr", {"momentum": "storm"}, 16 ** (-1 / 3)),
        ("padamfed_vr", {"momentum": "ema"}, 16 ** (-1 / 4)),
    ],
    ids=["padamfed", "parfrefl", "padamfed_vr-storm", "padamfed_vr-ema"],
)
def test_sixteen_times_the_rounds_shrink_the_gradient_at_the_theorems_rate(
    name: str, options: dict[str, object], ratio: float
) -> None:
    short, long = over_seeds(name, options, 20), over_seeds(name, options, 320)
    assert np.all(long < 0.7 * short)
    assert long.mean() / short.mean() < 1.15 * ratio


def fixed_point(problem: Problem, eta: float, K: int) -> Array:
    """Where K exact local steps of all clients cancel: Σ (I - (I - η A_i)^K)(θ - b_i) = 0."""
    eye = np.eye(problem.d)
    pull = [eye - np.linalg.matrix_power(eye - eta * A, K) for A in problem.A]
    total = sum((P @ b for P, b in zip(pull, problem.b, strict=True)), np.zeros(problem.d))
    solution: Array = np.linalg.solve(np.array(pull).sum(axis=0), total)
    return solution


@pytest.mark.parametrize("seed", SEEDS)
def test_fedavg_stalls_at_its_biased_point(seed: int) -> None:
    sys, problem = System(N=5, S=5, K=8, T=150), quadratic(N=5, noise=0.0, seed=seed)
    stalled = simulate(bind(FedAvg(eta=0.1), sys), problem).thetas[-1]
    np.testing.assert_allclose(stalled, fixed_point(problem, 0.1, 8), rtol=1e-6, atol=1e-8)
    assert np.linalg.norm(stalled - problem.optimum) > 0.5


@pytest.mark.parametrize("seed", SEEDS)
def test_control_variates_or_single_steps_have_no_bias(seed: int) -> None:
    sys, problem = System(N=5, S=5, K=8, T=150), quadratic(N=5, noise=0.0, seed=seed)
    algos: list[Algorithm] = [
        bind(FedAvg(eta=0.3), sys._replace(K=1)),
        bind(Scaffold(eta=0.05), sys),
    ]
    for algo in algos:
        end = simulate(algo, problem).thetas[-1]
        np.testing.assert_allclose(end, problem.optimum, rtol=1e-6, atol=1e-8)
