"""The baselines against their pages."""

from __future__ import annotations

from typing import Any

import pytest

from evidence.tests.baselines.delta_sgd import delta_sgd
from evidence.tests.baselines.fafed import fafed
from evidence.tests.baselines.fedams_local import fedams_local
from evidence.tests.baselines.fedams_server import fedams_server
from evidence.tests.baselines.fedcm import fedcm
from evidence.tests.baselines.feddyn import feddyn
from evidence.tests.baselines.fedexp import fedexp
from evidence.tests.baselines.fedsps import fedsps
from evidence.tests.baselines.mime import mime, mime_lite
from evidence.tests.baselines.slowmo import slowmo
from tests.problem import simulate
from tests.twins.test_twins import agree, all_systems, both_starts, problem_of
from tunefree.core import System, bind
from tunefree.settings import Opening
from tunefree_evidence.baselines.delta_sgd import DeltaSGD
from tunefree_evidence.baselines.fafed import FAFED
from tunefree_evidence.baselines.fedams_local import FedAMSLocal
from tunefree_evidence.baselines.fedams_server import FedAMSServer
from tunefree_evidence.baselines.fedcm import FedCM
from tunefree_evidence.baselines.feddyn import FedDyn
from tunefree_evidence.baselines.fedexp import FedExP
from tunefree_evidence.baselines.fedsps import FedSPS
from tunefree_evidence.baselines.mime import Mime, MimeLite
from tunefree_evidence.baselines.slowmo import SlowMo


@all_systems
def test_slowmo(sys: System) -> None:
    problem = problem_of(sys)
    trace = simulate(bind(SlowMo(eta=0.04, s=0.8, mu=0.6), sys), problem)
    agree(trace.thetas, slowmo(problem, trace.cohorts, sys.K, 0.04, 0.8, 0.6), sys.T)


@pytest.mark.parametrize("epsilon", [1e-3, 0.3])
@pytest.mark.parametrize("final", ["average", "last"])
@all_systems
def test_fedexp(sys: System, final: Any, epsilon: float) -> None:
    problem = problem_of(sys)
    trace = simulate(bind(FedExP(0.04, epsilon, final), sys), problem)
    agree(
        trace.thetas,
        fedexp(problem, trace.cohorts, sys.K, 0.04, epsilon, final == "average"),
        sys.T,
    )


@all_systems
def test_feddyn(sys: System) -> None:
    problem = problem_of(sys)
    trace = simulate(bind(FedDyn(eta=0.05, alpha=0.3), sys), problem)
    agree(trace.thetas, feddyn(problem, trace.cohorts, sys.K, 0.05, 0.3), sys.T)


@all_systems
def test_fedcm(sys: System) -> None:
    problem = problem_of(sys)
    trace = simulate(bind(FedCM(eta=0.05, beta=0.3, s=0.8), sys), problem)
    agree(trace.thetas, fedcm(problem, trace.cohorts, sys.K, 0.05, 0.8, 0.3), sys.T)


@pytest.mark.parametrize("correction", ["off", "on"])
@pytest.mark.parametrize("option", ["1", "2"])
@all_systems
def test_fedams_server(sys: System, option: Any, correction: Any) -> None:
    problem = problem_of(sys)
    algo = bind(FedAMSServer(0.05, 0.1, 0.8, 0.7, 0.03, option, correction), sys)
    trace = simulate(algo, problem)
    steps = (0.05, 0.1, 0.03, 0.8, 0.7)
    page = fedams_server(
        problem,
        trace.cohorts,
        sys.K,
        *steps,
        option=int(option),
        bias_correction=correction == "on",
    )
    agree(trace.thetas, page, sys.T)


@all_systems
def test_fedams_local(sys: System) -> None:
    problem = problem_of(sys)
    trace = simulate(bind(FedAMSLocal(eta=0.02, beta1=0.8, beta2=0.7, epsilon=0.01), sys), problem)
    agree(trace.thetas, fedams_local(problem, trace.cohorts, sys.K, 0.02, 0.8, 0.7, 0.01), sys.T)


@pytest.mark.parametrize("statistics", ["full", "batches"])
@pytest.mark.parametrize(("cls", "page"), [(Mime, mime), (MimeLite, mime_lite)])
@all_systems
def test_mime(sys: System, cls: Any, page: Any, statistics: str) -> None:
    problem = problem_of(sys)
    trace = simulate(bind(cls(eta=0.05, beta=0.3, statistics=statistics), sys), problem)
    agree(trace.thetas, page(problem, trace.cohorts, sys.K, 0.05, 0.7, statistics), sys.T)


@pytest.mark.parametrize(("c", "eta_b", "l_star"), [(0.7, 0.1, 0.0), (3.0, 2.0, -4.0)])
@pytest.mark.parametrize("rule", ["constant", "decreasing"])
@all_systems
def test_fedsps(sys: System, rule: Any, c: float, eta_b: float, l_star: float) -> None:
    problem = problem_of(sys)
    trace = simulate(bind(FedSPS(c, eta_b, l_star, rule), sys), problem)
    page = fedsps(problem, trace.cohorts, sys.K, c, eta_b, l_star, rule == "decreasing")
    agree(trace.thetas, page, sys.T)


@pytest.mark.parametrize(("gamma", "delta", "eta_0"), [(2, 0.1, 0.2), (0.7, 3.0, 0.02)])
@pytest.mark.parametrize("batches", ["same", "own"])
@all_systems
def test_delta_sgd(sys: System, batches: Any, gamma: float, delta: float, eta_0: float) -> None:
    problem = problem_of(sys)
    trace = simulate(bind(DeltaSGD(gamma, delta, eta_0, batches), sys), problem)
    page = delta_sgd(problem, trace.cohorts, sys.K, gamma, delta, eta_0, batches == "same")
    agree(trace.thetas, page, sys.T)


@both_starts
@all_systems
def test_fafed(sys: System, start: Opening) -> None:
    problem = problem_of(sys)
    trace = simulate(bind(FAFED(eta=0.02, beta=0.3, beta2=0.6, epsilon=0.2), sys), problem, start)
    agree(trace.thetas, fafed(problem, trace.cohorts, sys.K, 0.02, 0.3, 0.6, 0.2, start), sys.T)


DEFAULTS: list[tuple[Any, Any, dict[str, Any]]] = [
    (SlowMo, slowmo, {"eta": 0.1, "alpha": 1, "beta": 0.5}),
    (FedDyn, feddyn, {"eta": 0.1, "alpha": 0.01}),
    (FedCM, fedcm, {"eta": 0.1, "s": 1, "alpha": 0.1}),
    (Mime, mime, {"eta": 0.1, "beta": 0.9}),
    (MimeLite, mime_lite, {"eta": 0.1, "beta": 0.9}),
    (FedSPS, fedsps, {"c": 0.5, "eta_b": 1, "l_star": 0, "decreasing": False}),
    (DeltaSGD, delta_sgd, {"gamma": 2, "delta": 0.1, "eta_0": 0.2}),
    (FedExP, fedexp, {"eta": 0.1, "epsilon": 0.001}),
    (FAFED, fafed, {"eta": 0.003, "alpha": 0.1, "beta": 0.1, "rho": 0.1}),
    (FedAMSLocal, fedams_local, {"eta": 1e-3, "beta1": 0.9, "beta2": 0.99}),
]


@pytest.mark.parametrize(
    ("cls", "page", "steps"), DEFAULTS, ids=lambda v: getattr(v, "__name__", "")
)
def test_defaults(cls: Any, page: Any, steps: dict[str, Any]) -> None:
    sys = System(N=7, S=3, K=4, T=10)
    problem = problem_of(sys)
    trace = simulate(bind(cls(), sys), problem)
    agree(trace.thetas, page(problem, trace.cohorts, sys.K, **steps), sys.T)
