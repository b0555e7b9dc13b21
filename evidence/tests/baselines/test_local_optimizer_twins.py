"""Adaptive clients, FedACG and FedSMOO against their pages: every iterate, over all options."""

from __future__ import annotations

from typing import Any

import pytest

from evidence.tests.baselines.dog import local_dog, server_dog
from evidence.tests.baselines.fedacg import fedacg
from evidence.tests.baselines.fedadamw import fedadamw, local_adamw
from evidence.tests.baselines.fedsmoo import fedsmoo
from evidence.tests.baselines.local_prodigy import local_prodigy
from evidence.tests.baselines.local_schedule_free import local_schedule_free
from tests.problem import simulate
from tests.twins.test_twins import agree, all_systems, problem_of
from tunefree.core import System, bind
from tunefree_evidence.baselines.dog import LocalDoG, ServerDoG
from tunefree_evidence.baselines.fedacg import FedACG
from tunefree_evidence.baselines.fedadamw import FedAdamW
from tunefree_evidence.baselines.fedsmoo import FedSMOO
from tunefree_evidence.baselines.local_prodigy import LocalProdigy
from tunefree_evidence.baselines.local_schedule_free import LocalScheduleFree


@pytest.mark.parametrize("shapes", [None, ((2, 1), (), (2,))], ids=["one-tensor", "three"])
@all_systems
def test_fedadamw(sys: System, shapes: Any) -> None:
    problem, sizes = problem_of(sys), [5] if shapes is None else [2, 1, 2]
    algo = bind(FedAdamW(0.02, 0.1, 0.3, beta1=0.8, beta2=0.95, epsilon=1e-4), sys, shapes)
    trace = simulate(algo, problem)
    page = fedadamw(problem, trace.cohorts, sys.K, sizes, 0.02, 0.1, 0.3, 0.8, 0.95, 1e-4)
    agree(trace.thetas, page, sys.T)


@pytest.mark.parametrize("moments", ["reset", "kept"])
@all_systems
def test_local_adamw(sys: System, moments: Any) -> None:
    problem = problem_of(sys)
    algo = FedAdamW(0.02, 0.1, beta1=0.8, beta2=0.95, epsilon=1e-4, moments=moments)
    trace = simulate(bind(algo, sys), problem)
    steps = (0.02, 0.1, moments == "kept", 0.8, 0.95, 1e-4)
    agree(trace.thetas, local_adamw(problem, trace.cohorts, sys.K, *steps), sys.T)


@all_systems
def test_fedacg(sys: System) -> None:
    problem = problem_of(sys)
    trace = simulate(bind(FedACG(eta=0.04, s=0.9, mu=0.5, lam=0.6), sys), problem)
    agree(trace.thetas, fedacg(problem, trace.cohorts, sys.K, 0.04, 0.9, 0.5, 0.6), sys.T)


@all_systems
def test_fedsmoo(sys: System) -> None:
    problem = problem_of(sys)
    trace = simulate(bind(FedSMOO(eta=0.05, alpha=0.3, rho=0.2), sys), problem)
    agree(trace.thetas, fedsmoo(problem, trace.cohorts, sys.K, 0.05, 0.3, 0.2), sys.T)


@pytest.mark.parametrize(
    ("cls", "page", "start"),
    [
        (LocalProdigy, local_prodigy, 0.01),
        (LocalDoG, local_dog, 0.01),
        (ServerDoG, server_dog, 0.01),
        (LocalScheduleFree, local_schedule_free, 0.04),
    ],
    ids=["prodigy", "local-dog", "server-dog", "schedule-free"],
)
@all_systems
def test_untuned(sys: System, cls: Any, page: Any, start: float) -> None:
    problem = problem_of(sys)
    trace = simulate(bind(cls(start), sys), problem)
    agree(trace.thetas, page(problem, trace.cohorts, sys.K, start), sys.T)


@pytest.mark.parametrize(
    ("cls", "page", "steps"),
    [
        (LocalProdigy, local_prodigy, {"d_0": 1e-6}),
        (LocalDoG, local_dog, {"r_eps": 1e-6}),
        (ServerDoG, server_dog, {"r_eps": 1e-6}),
        (LocalScheduleFree, local_schedule_free, {"eta": 0.0025}),
        (FedAdamW, fedadamw, {"sizes": [5], "eta": 3e-4, "decay": 0, "alpha": 0.5}),
        (FedACG, fedacg, {"eta": 0.1, "s": 1, "mu": 0.01, "lam": 0.85}),
        (FedSMOO, fedsmoo, {"eta": 0.1, "alpha": 0.01, "rho": 0.1}),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_defaults(cls: Any, page: Any, steps: dict[str, Any]) -> None:
    T = {ServerDoG: 120, LocalProdigy: 10}.get(cls, 30)  # until the model has moved
    sys = System(N=4, S=3, K=9, T=T)
    problem = problem_of(sys)
    trace = simulate(bind(cls(), sys), problem)
    agree(trace.thetas, page(problem, trace.cohorts, sys.K, **steps), sys.T)
