"""Compressed methods against their pages, with compressors written naively as well."""

from __future__ import annotations

from typing import Any

import pytest

from tests.problem import simulate
from tests.twins.comparfrefl import comparfrefl
from tests.twins.compression import Naive, per_tensor, qsgd, rotated, sign, top
from tests.twins.test_twins import STARTS, SYSTEMS, agree, problem_of, theory
from tunefree.core import System, bind
from tunefree.methods.comparfrefl import ComParFreFL
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
