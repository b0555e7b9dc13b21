"""The other baselines against their pages: every iterate, over systems and options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.problem import simulate
from tests.twins.fedavgm import fedavgm
from tests.twins.fednova import fednova
from tests.twins.fedopt import fedopt
from tests.twins.fedprox import fedprox
from tests.twins.test_twins import agree, all_systems, problem_of
from tunefree.core import Reply, System, bind
from tunefree.methods.fedavgm import FedAvgM
from tunefree.methods.fednova import FedNova, Up
from tunefree.methods.fedopt import FedAdagrad, FedAdam, FedYogi
from tunefree.methods.fedprox import FedProx
from tunefree.methods.local_sgd import Model


@pytest.mark.parametrize("momentum", ["heavy-ball", "nesterov"])
@all_systems
def test_fedavgm(sys: System, momentum: Any) -> None:
    problem, nesterov = problem_of(sys), momentum == "nesterov"
    trace = simulate(bind(FedAvgM(eta=0.04, s=0.6, mu=0.7, momentum=momentum), sys), problem)
    agree(trace.thetas, fedavgm(problem, trace.cohorts, sys.K, 0.04, 0.6, 0.7, nesterov), sys.T)


@all_systems
def test_fedprox(sys: System) -> None:
    problem = problem_of(sys)
    trace = simulate(bind(FedProx(eta=0.06, s=0.9, mu=0.8), sys), problem)
    agree(trace.thetas, fedprox(problem, trace.cohorts, sys.K, 0.06, 0.9, 0.8), sys.T)


@pytest.mark.parametrize("effective", ["a", "steps"])
@pytest.mark.parametrize(("rho", "mu"), [(0.0, 0.0), (0.7, 0.0), (0.0, 0.9)])
@all_systems
def test_fednova(sys: System, rho: float, mu: float, effective: Any) -> None:
    problem = problem_of(sys)
    trace = simulate(
        bind(FedNova(eta=0.05, s=0.9, rho=rho, mu=mu, effective=effective), sys), problem
    )
    page = fednova(problem, trace.cohorts, sys.K, 0.05, 0.9, rho, mu, effective)
    agree(trace.thetas, page, sys.T)


@pytest.mark.parametrize("effective", ["a", "steps"])
def test_fednova_weights_unequal_work(effective: Any) -> None:
    """Clients that send other numbers of steps, unlike the contract's equal K."""
    sys, p = System(N=3, S=3, K=4, T=1), 1 / 3
    algo = bind(FedNova(eta=0.05, s=0.9, mu=0.4, effective=effective), sys)
    rng = np.random.default_rng(0)
    theta, delta = rng.normal(size=5), rng.normal(size=(3, 5))
    steps, a = [2, 5, 9], [1.5, 4.0, 6.25]
    ups = [Up(torch.from_numpy(delta[i]), a[i], steps[i]) for i in range(3)]
    replies = [Reply(i, 1, 0, up) for i, up in enumerate(ups)]
    after = algo.aggregate(Model(torch.from_numpy(theta)), replies).theta
    tau_eff = sum(p * work for work in (a if effective == "a" else steps))
    expected = theta - 0.9 * tau_eff * sum(p * delta[i] / a[i] for i in range(3))
    np.testing.assert_allclose(after, expected, rtol=1e-12)


@all_systems
def test_fedadagrad(sys: System) -> None:
    problem = problem_of(sys)
    trace = simulate(bind(FedAdagrad(eta=0.05, eta_s=0.2, epsilon=0.02), sys), problem)
    agree(trace.thetas, fedopt(problem, trace.cohorts, sys.K, "adagrad", 0.05, 0.2, 0.02, 0), sys.T)


@pytest.mark.parametrize(("cls", "rule"), [(FedAdam, "adam"), (FedYogi, "yogi")])
@all_systems
def test_fedadam_and_fedyogi(sys: System, cls: Any, rule: str) -> None:
    problem = problem_of(sys)
    algo = bind(cls(eta=0.05, eta_s=0.1, beta1=0.8, beta2=0.7, epsilon=0.02), sys)
    trace = simulate(algo, problem)
    page = fedopt(problem, trace.cohorts, sys.K, rule, 0.05, 0.1, 0.02, 0.8, 0.7)
    agree(trace.thetas, page, sys.T)


DEFAULTS: list[tuple[Any, Any, dict[str, Any]]] = [
    (FedAvgM, fedavgm, {"eta": 0.1, "s": 1, "mu": 0.9, "nesterov": False}),
    (FedProx, fedprox, {"eta": 0.1, "s": 1, "mu": 0.01}),
    (FedNova, fednova, {"eta": 0.1, "s": 1}),
]


@pytest.mark.parametrize(
    ("cls", "page", "steps"), DEFAULTS, ids=lambda v: getattr(v, "__name__", "")
)
def test_defaults(cls: Any, page: Any, steps: dict[str, Any]) -> None:
    sys = System(N=7, S=3, K=4, T=10)
    problem = problem_of(sys)
    trace = simulate(bind(cls(), sys), problem)
    agree(trace.thetas, page(problem, trace.cohorts, sys.K, **steps), sys.T)
