"""SCAFFOLD's variants against their pages."""

from __future__ import annotations

from typing import Any

import pytest

from evidence.tests.baselines.scaffold_m import scaffold_m
from evidence.tests.baselines.scaffold_m_vr import scaffold_m_vr
from evidence.tests.baselines.scaffold_norm import scaffold_norm
from tests.problem import simulate
from tests.twins.test_twins import agree, all_systems, both_starts, problem_of
from tunefree.core import System, bind
from tunefree.settings import Opening
from tunefree_evidence.baselines.scaffold_m import ScaffoldM
from tunefree_evidence.baselines.scaffold_m_vr import ScaffoldMVR
from tunefree_evidence.baselines.scaffold_norm import ScaffoldNorm


@both_starts
@all_systems
def test_scaffold_norm_at_the_theorem(sys: System, start: Opening) -> None:
    problem, (_, S, K, T) = problem_of(sys), sys
    trace = simulate(bind(ScaffoldNorm(), sys), problem, start)
    eta, gamma = 1 / (K * T ** (1 / 2)), (S * K) ** (1 / 4) / T ** (3 / 4)
    agree(trace.thetas, scaffold_norm(problem, trace.cohorts, K, eta, gamma, start), T)


def test_scaffold_norm_with_explicit_steps() -> None:
    sys = System(N=7, S=3, K=4, T=30)
    trace = simulate(bind(ScaffoldNorm(eta=0.02, gamma=0.3), sys), problem_of(sys))
    agree(trace.thetas, scaffold_norm(problem_of(sys), trace.cohorts, 4, 0.02, 0.3), sys.T)


@both_starts
@all_systems
def test_scaffold_m(sys: System, start: Opening) -> None:
    problem = problem_of(sys)
    trace = simulate(bind(ScaffoldM(eta=0.03, beta=0.3, s=1.5), sys), problem, start)
    gamma = 1.5 * 0.03 * sys.K
    agree(trace.thetas, scaffold_m(problem, trace.cohorts, sys.K, 0.03, gamma, 0.3, start), sys.T)


@both_starts
@all_systems
def test_scaffold_m_vr(sys: System, start: Opening) -> None:
    problem, K = problem_of(sys), sys.K
    trace = simulate(bind(ScaffoldMVR(eta=0.03, beta=0.3, s=1.5), sys), problem, start)
    gamma = 1.5 * 0.03 * K
    agree(trace.thetas, scaffold_m_vr(problem, trace.cohorts, K, 0.03, gamma, 0.3, start), sys.T)


@pytest.mark.parametrize(("cls", "page"), [(ScaffoldM, scaffold_m), (ScaffoldMVR, scaffold_m_vr)])
def test_gamma_where_given_replaces_s_eta_k(cls: Any, page: Any) -> None:
    sys = System(N=7, S=3, K=4, T=30)
    trace = simulate(bind(cls(eta=0.03, beta=0.4, s=1.5, gamma=0.1), sys), problem_of(sys))
    agree(trace.thetas, page(problem_of(sys), trace.cohorts, 4, 0.03, 0.1, 0.4), sys.T)
