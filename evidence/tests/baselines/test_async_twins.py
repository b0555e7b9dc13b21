"""Asynchronous baselines against their pages, with late clients."""

from __future__ import annotations

from typing import Any

import pytest

from evidence.tests.baselines.ca2fl import ca2fl
from evidence.tests.baselines.defedavg_niid import defedavg_niid
from evidence.tests.baselines.fadas import fadas
from tests.twins.fedbuff import fedbuff
from tests.twins.test_async_twins import PARTIAL, Setting, all_settings, run
from tests.twins.test_twins import agree, problem_of
from tunefree.core import bind
from tunefree.methods.fedbuff import FedBuff
from tunefree_evidence.baselines.ca2fl import CA2FL
from tunefree_evidence.baselines.defedavg_niid import DeFedAvgNIID
from tunefree_evidence.baselines.fadas import FADAS


@all_settings
def test_ca2fl(setting: Setting) -> None:
    sys = setting[0]
    trace = run(bind(CA2FL(eta=0.03, s=0.7), sys), setting)
    agree(trace.thetas, ca2fl(problem_of(sys), trace.uploads, sys.K, 0.03, 0.7), sys.T)


@all_settings
def test_defedavg_niid(setting: Setting) -> None:
    sys = setting[0]
    trace = run(bind(DeFedAvgNIID(eta=0.03, s=0.7), sys), setting)
    agree(trace.thetas, defedavg_niid(problem_of(sys), trace.uploads, sys.K, 0.03, 0.7), sys.T)


@pytest.mark.parametrize("tau_c", [1.0, 2.0])
@pytest.mark.parametrize(
    ("delay", "rule"), [("plain", "code"), ("adaptive", "code"), ("adaptive", "paper")]
)
@all_settings
def test_fadas(setting: Setting, delay: Any, rule: Any, tau_c: float) -> None:
    sys = setting[0]
    algo = bind(FADAS(eta=0.03, gamma=0.4, delay=delay, rule=rule, tau_c=tau_c), sys)
    trace = run(algo, setting)
    page = fadas(problem_of(sys), trace.uploads, sys.K, 0.03, 0.4, delay, rule, tau_c)
    agree(trace.thetas, page, sys.T)


def test_fadas_with_other_constants() -> None:
    setting: Setting = (PARTIAL, 7, "flush", "mild", 0.0)
    constants: dict[str, Any] = {"beta1": 0.6, "beta2": 0.8}
    trace = run(bind(FADAS(eta=0.03, gamma=0.05, epsilon=1e-3, **constants), PARTIAL), setting)
    page = fadas(problem_of(PARTIAL), trace.uploads, 4, 0.03, 0.05, eps=1e-3, **constants)
    agree(trace.thetas, page, PARTIAL.T)


def test_defaults_are_the_papers() -> None:
    """FedBuff weights by age; FADAS ignores delays, and follows the authors' code otherwise."""
    setting: Setting = (PARTIAL, 7, "flush", "mild", 0.0)
    trace, problem = run(bind(FedBuff(eta=0.03), PARTIAL), setting), problem_of(PARTIAL)
    agree(trace.thetas, fedbuff(problem, trace.uploads, 4, 0.03, 1.0, "sqrt"), PARTIAL.T)
    trace = run(bind(FADAS(eta=0.03, gamma=0.1), PARTIAL), setting)
    agree(trace.thetas, fadas(problem, trace.uploads, 4, 0.03, 0.1, "plain"), PARTIAL.T)
    trace = run(bind(FADAS(eta=0.03, gamma=0.1, delay="adaptive"), PARTIAL), setting)
    page = fadas(problem, trace.uploads, 4, 0.03, 0.1, "adaptive", "code", 1)
    agree(trace.thetas, page, PARTIAL.T)
