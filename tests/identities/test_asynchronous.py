"""Asynchronous methods: what they are without delay, and what no delay or loss can break."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from tests.by_hand import Moment
from tests.problem import simulate, simulate_buffered
from tunefree.core import Algorithm, System, bind
from tunefree.fleet.serial import Serial
from tunefree.methods.adamasfl import AdaMasFL
from tunefree.methods.fedavg import FedAvg
from tunefree.methods.fedbuff import FedBuff
from tunefree.methods.masfl import MasFL
from tunefree.methods.padamfed import PAdaMFed
from tunefree.methods.polarfl import PolarFL
from tunefree.schedule.simulate import simulate as play
from tunefree.settings import Schedule
from tunefree.testing import Problem, QuadraticOracle, Trace, quadratic
from tunefree.wire import from_spec
from tunefree_evidence.baselines.ca2fl import CA2FL
from tunefree_evidence.baselines.scaffold_m import ScaffoldM

SYS = System(N=9, S=3, K=4, T=40)
both_starts = pytest.mark.parametrize("start", ["gradients", "zero"])


def same_bits(ours: Trace, theirs: Trace) -> None:
    assert len(ours.thetas) == len(theirs.thetas) == SYS.T + 1
    assert not np.allclose(ours.thetas[0], ours.thetas[-1], rtol=1e-3)
    for a, b in zip(ours.steps, theirs.steps, strict=True):
        assert torch.equal(a.server.theta, b.server.theta)


def late(algo: Algorithm, dispatch: Any = "flush", scale: float = 1) -> Trace:
    trace = simulate_buffered(algo, quadratic(N=SYS.N, scale=scale), 7, dispatch)
    assert max(tau for step in trace.steps for tau in step.staleness) > 2
    return trace


@both_starts
def test_adamasfl_without_delay_is_padamfed(start: Any) -> None:
    problem, algo = quadratic(N=SYS.N), bind(AdaMasFL(), SYS)
    expected = simulate(bind(PAdaMFed(), SYS), problem, start)
    for ours in (
        simulate_buffered(algo, problem, SYS.S, opening=start),
        simulate(algo, problem, start),
    ):
        same_bits(ours, expected)
        for a, b in zip(ours.server, expected.server, strict=True):
            assert torch.equal(a, b)
        for client in range(SYS.N):
            assert torch.equal(ours.fleet.states[client].c_i, expected.fleet.states[client].c_i)
    assert not np.allclose(late(algo).thetas[-1], expected.thetas[-1], rtol=1e-3)


@pytest.mark.parametrize("s", [1.0, 0.6])
def test_fedbuff_without_delay_is_fedavg(s: float) -> None:
    problem = quadratic(N=SYS.N)
    expected = simulate(bind(FedAvg(eta=0.05, s=s), SYS), problem)
    for ours in (  # no reply is late, so none has a smaller weight
        bind(FedBuff(eta=0.05, s=s, weight="one"), SYS),
        bind(FedBuff(eta=0.05, s=s, weight="sqrt"), SYS),
    ):
        same_bits(simulate_buffered(ours, problem, SYS.S), expected)


def moments(algo: Algorithm, problem: Problem, **setting: Any) -> list[Moment]:
    """The server and all clients' accepted states after every step."""
    theta0 = torch.from_numpy(problem.theta0)
    fleet = Serial(algo, theta0, lambda job: QuadraticOracle(problem, job))
    steps = play(algo, fleet, theta0, 2, Schedule("buffered", **setting))
    return [
        Moment(step.t, step.server, [fleet.states[i] for i in range(algo.sys.N)]) for step in steps
    ]


@pytest.mark.parametrize(("dropout", "timeout"), [(0.0, 0.0), (0.4, 0.0), (0.2, 4.5)])
@pytest.mark.parametrize(
    ("dispatch", "concurrency"), [("flush", 8), ("immediate", 7), ("queue", 9)]
)
@pytest.mark.parametrize(
    ("algo", "field"),
    [
        (bind(AdaMasFL(), SYS), "c"),
        (bind(MasFL(beta=0.4, eta=0.02, gamma=0.1), SYS), "c"),
        (bind(ScaffoldM(eta=0.02), SYS), "c"),
        (bind(CA2FL(eta=0.05), SYS), "h"),
        (bind(PolarFL(), SYS, ((2, 2), ())), "c"),
        (bind(PolarFL(from_spec("top:0.4")), SYS, ((2, 2), ())), "c"),
    ],
    ids=["adamasfl", "masfl", "scaffold_m", "ca2fl", "polarfl", "polarfl-top"],
)
def test_the_server_knows_the_mean_of_the_clients_states(
    algo: Any, field: str, dispatch: Any, concurrency: int, dropout: float, timeout: float
) -> None:
    """However late the replies, and however many are lost: c = mean c_i, h = mean h_i."""
    setting = {"dropout": dropout, "timeout": timeout, "dispatch": dispatch}
    largest = 0.0
    for moment in moments(algo, quadratic(N=SYS.N), concurrency=concurrency, **setting):
        held = torch.stack([client[0] for client in moment.clients]).mean(0)
        known = getattr(moment.server, field)
        np.testing.assert_allclose(known, held, rtol=1e-10, atol=1e-12)
        largest = max(largest, float(known.norm()))
    assert largest > 0.1
    changed = [not torch.equal(client[0], 0 * client[0]) for client in moment.clients]
    assert sum(changed) >= SYS.S


@pytest.mark.parametrize("dispatch", ["flush", "immediate", "queue"])
def test_a_step_of_adamasfl_moves_at_most_gamma(dispatch: Any) -> None:
    algo = bind(AdaMasFL(), SYS)
    thetas = late(algo, dispatch).thetas
    moves = np.array([np.linalg.norm(b - a) for a, b in pairwise(thetas)])
    assert np.all(moves <= algo.gamma * (1 + 1e-12))
    assert np.all(moves > 0.1 * algo.gamma)


@pytest.mark.parametrize("dispatch", ["flush", "immediate", "queue"])
def test_the_unit_of_the_loss_does_not_matter_to_adamasfl(dispatch: Any) -> None:
    algo = bind(AdaMasFL(), SYS)
    one, thousand = (late(algo, dispatch, scale).thetas for scale in (1, 1000))
    np.testing.assert_allclose(one, thousand, rtol=1e-10, atol=1e-12)
    masfl = bind(MasFL(), SYS)
    assert not np.allclose(late(masfl).thetas[-1], late(masfl, scale=1.5).thetas[-1], rtol=1e-2)


def mean_gradient(trace: Trace, problem: Problem) -> float:
    A, Ab = problem.A.mean(axis=0), np.einsum("nij,nj->i", problem.A, problem.b) / len(problem.b)
    return float(np.linalg.norm(np.array(trace.thetas[:-1]) @ A - Ab, axis=1).mean())


def test_adamasfl_converges_at_the_theorems_rate_though_replies_are_late() -> None:
    """Sixteen times the steps divide the mean gradient norm by 2, with mean staleness 2."""
    shrunk = []
    for seed in range(5):
        problem = quadratic(N=6, seed=seed)
        short, long = (
            mean_gradient(
                simulate_buffered(bind(AdaMasFL(), System(6, 2, 2, T)), problem, 6), problem
            )
            for T in (20, 320)
        )
        assert long < 0.7 * short
        shrunk.append(long / short)
    assert np.mean(shrunk) < 1.15 / 2
