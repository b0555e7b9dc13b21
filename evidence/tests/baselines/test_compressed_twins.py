"""Compressed baselines against their pages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evidence.tests.baselines.fed_ef_ams import fed_ef_ams
from evidence.tests.baselines.fed_ef_sgd import fed_ef_sgd
from evidence.tests.baselines.local_sgd_c import local_sgd_c
from evidence.tests.baselines.scafcom import scafcom
from evidence.tests.baselines.scallion import scallion
from tests.problem import simulate
from tests.twins.compression import identity, per_tensor, qsgd, top
from tests.twins.test_compressed_twins import (
    CONTRACTIVE,
    SIZES,
    Both,
    all_systems,
    both_starts,
    contractive,
    ours,
)
from tests.twins.test_twins import agree, problem_of
from tunefree.core import System, bind
from tunefree.settings import Opening
from tunefree.wire import from_spec
from tunefree_evidence.baselines.fed_ef_ams import FedEFAMS
from tunefree_evidence.baselines.fed_ef_sgd import FedEFSGD
from tunefree_evidence.baselines.local_sgd_c import LocalSGDC
from tunefree_evidence.baselines.scafcom import Scafcom
from tunefree_evidence.baselines.scallion import Scallion

UNBIASED: list[Any] = [
    pytest.param(("qsgd:3", per_tensor(qsgd(3), SIZES)), id="qsgd"),
    pytest.param(("qsgd:2@whole", qsgd(2)), id="qsgd-whole"),
    pytest.param(("identity", identity), id="identity"),
]


@contractive
@both_starts
@all_systems
def test_scafcom(sys: System, start: Opening, C: Both) -> None:
    problem = problem_of(sys)
    algo = bind(Scafcom(eta=0.02, s=1.5, beta=0.3, start=start, C=ours(C)), sys)
    trace = simulate(algo, problem)
    page = scafcom(problem, trace.cohorts, sys.K, C[1], 0.02, 1.5, 0.3, start)
    agree(trace.thetas, page, sys.T)


@pytest.mark.parametrize("C", UNBIASED)
@all_systems
def test_scallion(sys: System, C: Both) -> None:
    problem = problem_of(sys)
    trace = simulate(bind(Scallion(eta=0.02, s=1.5, alpha=0.3, C=ours(C)), sys), problem)
    agree(trace.thetas, scallion(problem, trace.cohorts, sys.K, C[1], 0.02, 1.5, 0.3), sys.T)


@contractive
@all_systems
def test_fed_ef_sgd(sys: System, C: Both) -> None:
    problem = problem_of(sys)
    trace = simulate(bind(FedEFSGD(eta=0.04, s=0.7, C=ours(C)), sys), problem)
    agree(trace.thetas, fed_ef_sgd(problem, trace.cohorts, sys.K, C[1], 0.04, 0.7), sys.T)


@contractive
@all_systems
def test_fed_ef_ams(sys: System, C: Both) -> None:
    problem = problem_of(sys)
    trace = simulate(bind(FedEFAMS(eta=0.04, gamma=0.05, C=ours(C)), sys), problem)
    agree(trace.thetas, fed_ef_ams(problem, trace.cohorts, sys.K, C[1], 0.04, 0.05), sys.T)


def test_fed_ef_ams_with_other_constants() -> None:
    sys = System(N=7, S=3, K=4, T=30)
    constants = {"beta1": 0.6, "beta2": 0.8}
    method = FedEFAMS(eta=0.04, gamma=0.05, epsilon=1e-3, C=from_spec("top:0.4"))
    algo = bind(replace(method, **constants), sys)  # type: ignore[arg-type]
    trace = simulate(algo, problem_of(sys))
    page = fed_ef_ams(
        problem_of(sys), trace.cohorts, 4, top(0.4), 0.04, 0.05, eps=1e-3, **constants
    )
    agree(trace.thetas, page, sys.T)


@pytest.mark.parametrize("C", CONTRACTIVE)
@all_systems
def test_local_sgd_c(sys: System, C: Both) -> None:
    problem = problem_of(sys)
    trace = simulate(bind(LocalSGDC(eta=0.04, C=ours(C)), sys), problem)
    agree(trace.thetas, local_sgd_c(problem, trace.cohorts, sys.K, C[1], 0.04), sys.T)
