"""The stateless PolarFL against its page: dense, compressed, late, and with unequal clients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.problem import simulate, simulate_buffered
from tests.shaped import WIDE, Shapes, problem_of
from tests.twins.compression import per_tensor, rotated, sign, top
from tests.twins.polarfl_stateless import polarfl_stateless
from tests.twins.test_async_twins import SETTINGS, Setting
from tests.twins.test_polarfl_twin import PARTIAL, all_layouts, sizes
from tests.twins.test_twins import SYSTEMS, agree
from tunefree.core import System, bind, norm
from tunefree.methods.polarfl_stateless import PolarFLStateless
from tunefree.schedule.delays import LAWS
from tunefree.wire import from_spec

all_systems = pytest.mark.parametrize("sys", SYSTEMS)


@all_layouts
@all_systems
def test_dense(sys: System, shapes: Shapes) -> None:
    problem = problem_of(sys, shapes)
    trace = simulate(bind(PolarFLStateless(), sys, shapes), problem)
    agree(trace.thetas, polarfl_stateless(problem, trace.uploads, sys.K, shapes), sys.T)


def test_not_averaged() -> None:
    problem = problem_of(PARTIAL, WIDE)
    trace = simulate(bind(PolarFLStateless(average="off"), PARTIAL, WIDE), problem)
    page = polarfl_stateless(problem, trace.uploads, PARTIAL.K, WIDE, average="off")
    agree(trace.thetas, page, PARTIAL.T)


@pytest.mark.parametrize("sigma", [0.0, 0.7])
def test_long_local_work(sigma: float) -> None:
    """A client's path is longer than the server's step, also where noise counts."""
    sys = System(N=5, S=4, K=25, T=12)
    problem = problem_of(sys, WIDE)
    trace = simulate(bind(PolarFLStateless(sigma=sigma), sys, WIDE), problem)
    page = polarfl_stateless(problem, trace.uploads, sys.K, WIDE, sigma=sigma)
    agree(trace.thetas, page, sys.T)


def test_one_tensor() -> None:
    problem = problem_of(PARTIAL, WIDE)
    trace = simulate(bind(PolarFLStateless(), PARTIAL), problem)
    page = polarfl_stateless(problem, trace.uploads, PARTIAL.K, [(problem.d,)])
    agree(trace.thetas, page, PARTIAL.T)


@pytest.mark.parametrize(
    ("spec", "naive"),
    [("top:0.4", top(0.4)), ("sign", sign), ("rotated:2", rotated([0.4528, 1.510]))],
    ids=["top", "sign", "rotated"],
)
@all_systems
def test_compressed(sys: System, spec: str, naive: Any) -> None:
    problem = problem_of(sys, WIDE)
    algo = bind(PolarFLStateless(from_spec(spec, sizes(WIDE))), sys, WIDE)
    trace = simulate(algo, problem)
    C = per_tensor(naive, sizes(WIDE))
    agree(trace.thetas, polarfl_stateless(problem, trace.uploads, sys.K, WIDE, C), sys.T)


@pytest.mark.parametrize("spec", ["", "top:0.4"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_late(setting: Setting, spec: str) -> None:
    sys, concurrency, dispatch, law, dropout = setting
    problem = problem_of(sys, WIDE)
    algo = bind(PolarFLStateless(from_spec(spec, sizes(WIDE)) if spec else None), sys, WIDE)
    trace = simulate_buffered(algo, problem, concurrency, dispatch, LAWS[law], dropout)
    C = [per_tensor(top(0.4), sizes(WIDE))] if spec else []
    agree(trace.thetas, polarfl_stateless(problem, trace.uploads, sys.K, WIDE, *C), sys.T)


def test_known_noise_shortens_the_steps() -> None:
    """With σ alone, no noise yet: M is what the page says."""
    problem = problem_of(PARTIAL, WIDE)
    trace = simulate(bind(PolarFLStateless(sigma=0.7), PARTIAL, WIDE), problem)
    none = [np.zeros(problem.d)] * PARTIAL.T
    page = polarfl_stateless(problem, trace.uploads, PARTIAL.K, WIDE, sigma=0.7, noises=none)
    agree(trace.thetas, page, PARTIAL.T)


@pytest.mark.parametrize("spec", ["", "top:0.4", "sign", "rotated:1", "qsgd-contractive:3"])
def test_uploads_are_bounded(spec: str) -> None:
    problem = problem_of(PARTIAL, WIDE)
    algo = bind(PolarFLStateless(from_spec(spec) if spec else None), PARTIAL, WIDE)
    trace = simulate(algo, problem)
    assert len(trace.uploads[-1]) == PARTIAL.S  # none was refused
    roots = np.sqrt(sizes(WIDE))
    np.testing.assert_allclose(sum(w**2 for w in algo.weights(trace.server.theta0)), 1)
    np.testing.assert_allclose(np.square(algo.weights(trace.server.theta0)), roots / roots.sum())
    assert float(norm(trace.server.m)) > 0
