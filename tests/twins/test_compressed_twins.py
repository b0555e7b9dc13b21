"""Compressed methods against their pages, with compressors written naively as well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.problem import simulate
from tests.twins.comparfrefl import comparfrefl
from tests.twins.compression import Naive, identity, per_tensor, qsgd, rotated, sign, top
from tests.twins.fed_ef_ams import fed_ef_ams
from tests.twins.fed_ef_sgd import fed_ef_sgd
from tests.twins.local_sgd_c import local_sgd_c
from tests.twins.scafcom import scafcom
from tests.twins.scallion import scallion
from tests.twins.test_twins import STARTS, SYSTEMS, agree, problem_of, theory
from tunefree.core import System, bind
from tunefree.methods.comparfrefl import ComParFreFL
from tunefree.methods.fed_ef_ams import FedEFAMS
from tunefree.methods.fed_ef_sgd import FedEFSGD
from tunefree.methods.local_sgd_c import LocalSGDC
from tunefree.methods.scafcom import Scafcom
from tunefree.methods.scallion import Scallion
from tunefree.settings import Opening
from tunefree.wire import from_spec

SIZES = (3, 2)
CONTRACTIVE: list[Any] = [
    pytest.param(("top:0.4", top(0.4)), id="top"),
    pytest.param(("top:0.7@whole", top(0.7)), id="top-whole"),
    pytest.param(("top:0.5", per_tensor(top(0.5), SIZES)), id="top-per-tensor"),
    pytest.param(("sign", per_tensor(sign, SIZES)), id="sign"),
]
RANDOM: list[Any] = [
    pytest.param(("qsgd-contractive:3", per_tensor(qsgd(3, True), SIZES)), id="qsgd-contractive"),
    pytest.param(("rotated:1", per_tensor(rotated([1.0]), SIZES)), id="rotated"),
    pytest.param(("rotated:2@whole", rotated([0.4528, 1.510])), id="rotated-whole"),
]
UNBIASED: list[Any] = [
    pytest.param(("qsgd:3", per_tensor(qsgd(3), SIZES)), id="qsgd"),
    pytest.param(("qsgd:2@whole", qsgd(2)), id="qsgd-whole"),
    pytest.param(("identity", identity), id="identity"),
]
Both = tuple[str, Naive]

all_systems = pytest.mark.parametrize("sys", SYSTEMS)
both_starts = pytest.mark.parametrize("start", STARTS)
contractive = pytest.mark.parametrize("C", CONTRACTIVE + RANDOM)


def ours(C: Both) -> Any:
    spec, _ = C
    return from_spec(spec, None if spec == "top:0.4" else SIZES)


@contractive
@both_starts
@all_systems
def test_comparfrefl(sys: System, start: Opening, C: Both) -> None:
    problem, steps = problem_of(sys), theory(ComParFreFL, sys)
    algo = bind(ComParFreFL(steps.eta, steps.gamma, steps.beta, ours(C)), sys)
    trace = simulate(algo, problem, start)
    agree(trace.thetas, comparfrefl(problem, trace.cohorts, sys.K, C[1], start), sys.T)


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
