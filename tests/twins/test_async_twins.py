"""Asynchronous methods against their pages, replaying the order of events of a run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.problem import simulate_buffered
from tests.twins.adamasfl import adamasfl
from tests.twins.fedbuff import fedbuff
from tests.twins.masfl import masfl
from tests.twins.test_twins import STARTS, agree, problem_of, theory
from tunefree.core import Algorithm, System, bind
from tunefree.methods.adamasfl import AdaMasFL
from tunefree.methods.fedbuff import FedBuff
from tunefree.methods.masfl import MasFL
from tunefree.schedule.delays import LAWS
from tunefree.settings import Opening
from tunefree.testing import Trace

PARTIAL = System(N=9, S=3, K=4, T=30)
SETTINGS: list[Any] = [
    # system, concurrency, dispatch, delays, dropout
    pytest.param((PARTIAL, 3, "flush", "mild", 0.0), id="flush-fresh"),
    pytest.param((PARTIAL, 7, "flush", "mild", 0.0), id="flush"),
    pytest.param((PARTIAL, 9, "flush", "large", 0.4), id="flush-large"),
    pytest.param((PARTIAL, 7, "immediate", "mild", 0.4), id="immediate"),
    pytest.param((PARTIAL, 7, "queue", "half-normal", 0.4), id="queue"),
    pytest.param((PARTIAL, 9, "queue", "large", 0.0), id="queue-large"),
    pytest.param(
        (System(N=6, S=1, K=3, T=25), 5, "immediate", "half-normal", 0.0), id="one-by-one"
    ),
    pytest.param((System(N=6, S=5, K=5, T=4), 6, "flush", "mild", 0.0), id="beta-clipped"),
]
Setting = tuple[System, int, Any, str, float]

all_settings = pytest.mark.parametrize("setting", SETTINGS)
both_starts = pytest.mark.parametrize("start", STARTS)


def run(algo: Algorithm, setting: Setting, start: Opening = "gradients") -> Trace:
    sys, concurrency, dispatch, law, dropout = setting
    trace = simulate_buffered(
        algo, problem_of(sys), concurrency, dispatch, LAWS[law], dropout, opening=start
    )
    late = {tau for step in trace.steps for tau in step.staleness}
    assert max(late) >= (1 if concurrency > sys.S else 0)
    return trace


@both_starts
@all_settings
def test_adamasfl(setting: Setting, start: Opening) -> None:
    sys = setting[0]
    trace = run(theory(AdaMasFL, sys), setting, start)
    agree(trace.thetas, adamasfl(problem_of(sys), trace.uploads, sys.K, start), sys.T)


@pytest.mark.parametrize("beta", [0.3, None])
@both_starts
@all_settings
def test_masfl(setting: Setting, start: Opening, beta: float | None) -> None:
    sys, eta, gamma = setting[0], 0.02, 0.07
    beta = beta or theory(MasFL, sys).beta
    trace = run(bind(MasFL(beta, eta, gamma), sys), setting, start)
    page = masfl(problem_of(sys), trace.uploads, sys.K, eta, gamma, beta, start)
    agree(trace.thetas, page, sys.T)


@pytest.mark.parametrize("weight", ["sqrt", "one"])
@pytest.mark.parametrize("mu", [0.0, 0.4])
@all_settings
def test_fedbuff(setting: Setting, weight: Any, mu: float) -> None:
    sys = setting[0]
    trace = run(bind(FedBuff(eta=0.03, s=0.7, mu=mu, weight=weight), sys), setting)
    page = fedbuff(problem_of(sys), trace.uploads, sys.K, 0.03, 0.7, weight, mu)
    agree(trace.thetas, page, sys.T)
