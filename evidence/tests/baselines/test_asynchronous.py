"""Asynchronous baselines: what they are without delay or weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.identities.test_asynchronous import SYS, both_starts, late, same_bits
from tests.problem import simulate, simulate_buffered
from tunefree.core import bind
from tunefree.methods.fedbuff import FedBuff
from tunefree.methods.masfl import MasFL
from tunefree.testing import quadratic
from tunefree_evidence.baselines.ca2fl import CA2FL
from tunefree_evidence.baselines.defedavg_niid import DeFedAvgNIID
from tunefree_evidence.baselines.fadas import FADAS
from tunefree_evidence.baselines.scaffold_m import ScaffoldM


@both_starts
def test_masfl_without_delay_is_scaffold_m(start: Any) -> None:
    """Up to rounding: from the same uploads the one forms g with c, the other with θ - θ_i."""
    problem, (eta, gamma, beta) = quadratic(N=SYS.N), (0.03, 0.1, 0.3)
    expected = simulate(bind(ScaffoldM(eta, beta, gamma=gamma), SYS), problem, start).thetas
    ours = simulate_buffered(
        bind(MasFL(beta, eta, gamma), SYS), problem, SYS.S, opening=start
    ).thetas
    assert not np.allclose(ours[0], ours[-1], rtol=1e-3)
    np.testing.assert_allclose(ours, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dispatch", ["flush", "immediate", "queue"])
def test_defedavg_niid_is_fedbuff_without_weights(dispatch: Any) -> None:
    plain = late(bind(FedBuff(eta=0.05, s=0.7, weight="one"), SYS), dispatch)
    same_bits(late(bind(DeFedAvgNIID(eta=0.05, s=0.7), SYS), dispatch), plain)
    weighed = late(bind(FedBuff(eta=0.05, s=0.7, weight="sqrt"), SYS), dispatch)
    assert not np.allclose(weighed.thetas[-1], plain.thetas[-1], rtol=1e-3)


def test_the_first_step_of_ca2fl_is_fedbuffs() -> None:
    (_, ours, second, *_), _ = late(bind(CA2FL(eta=0.05, s=0.7), SYS))
    (_, theirs, other, *_), _ = late(bind(FedBuff(eta=0.05, s=0.7, weight="one"), SYS))
    assert torch.equal(ours.server.theta, theirs.server.theta)
    assert not torch.equal(second.server.theta, other.server.theta)


def test_fadas_adapts_to_delays_only_if_there_are_some() -> None:
    problem = quadratic(N=SYS.N)
    plain = bind(FADAS(eta=0.05, gamma=0.4), SYS)
    for adaptive in (
        bind(FADAS(eta=0.05, gamma=0.4, delay="adaptive", rule="code"), SYS),
        bind(FADAS(eta=0.05, gamma=0.4, delay="adaptive", rule="paper"), SYS),
    ):
        fresh = simulate_buffered(adaptive, problem, SYS.S)
        same_bits(fresh, simulate(plain, problem))
        assert not np.allclose(late(adaptive).thetas[-1], late(plain).thetas[-1], rtol=1e-3)
