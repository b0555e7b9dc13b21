"""Compressed baselines: what they become with the identity, and that no error is lost."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from tests.by_hand import CastOracle, by_hand
from tests.identities.test_compressed import FULL, IDENTITY, PARTIAL, both_systems, same
from tests.problem import simulate
from tunefree.core import Reply, System, bind
from tunefree.errors import WireError
from tunefree.fleet.job import Job
from tunefree.methods.fedavg import FedAvg
from tunefree.methods.scaffold import Scaffold
from tunefree.testing import Problem, quadratic
from tunefree.wire import from_spec
from tunefree_evidence.baselines.fed_ef_sgd import FedEFSGD
from tunefree_evidence.baselines.local_sgd_c import LocalSGDC
from tunefree_evidence.baselines.scafcom import Scafcom
from tunefree_evidence.baselines.scallion import Scallion


class RememberingOracle(CastOracle):
    """Knows the job it was made for."""

    def __init__(self, problem: Problem, job: Job) -> None:
        super().__init__(problem, job)
        self.job = job


@pytest.mark.parametrize("s", [1.0, 0.7])
@both_systems
def test_scallion_without_scaling_and_compression_is_scaffold(sys: System, s: float) -> None:
    problem = quadratic(N=sys.N)
    ours = simulate(bind(Scallion(eta=0.05, s=s, alpha=1.0, C=IDENTITY), sys), problem).thetas
    same(ours, simulate(bind(Scaffold(eta=0.05, s=s, option="II"), sys), problem).thetas)


@pytest.mark.parametrize("start", ["zero", "gradients"])
@both_systems
def test_scafcom_without_momentum_and_compression_is_scaffold(sys: System, start: Any) -> None:
    problem = quadratic(N=sys.N)
    algo = bind(Scafcom(eta=0.05, s=0.7, beta=1.0, start=start, C=IDENTITY), sys)
    page = bind(Scaffold(eta=0.05, s=0.7, option="II", start=start), sys)
    same(simulate(algo, problem).thetas, simulate(page, problem).thetas)


@pytest.mark.parametrize("make", [FedEFSGD, LocalSGDC], ids=["fed_ef_sgd", "local_sgd_c"])
@both_systems
def test_error_feedback_without_error_is_fedavg(sys: System, make: Any) -> None:
    problem = quadratic(N=sys.N)
    ours = simulate(bind(make(eta=0.05, C=IDENTITY), sys), problem).thetas
    same(ours, simulate(bind(FedAvg(eta=0.05), sys), problem).thetas)


def test_error_feedback_loses_nothing() -> None:
    """What the server has applied and what the clients store is all that was computed."""
    problem = quadratic(N=PARTIAL.N)
    sent = torch.zeros(problem.d)
    wanted: dict[int, torch.Tensor] = {}
    algo = bind(FedEFSGD(eta=0.05, s=1.0, C=from_spec("top:0.2")), PARTIAL)
    plain = bind(FedAvg(eta=0.05), PARTIAL)

    def watched(function: Any, *given: Any) -> Any:
        result = function(*given)
        if function == algo.local:
            _, down, F = given
            again = type(F)(problem, F.job)
            _, up = plain.local(plain.client(down.theta), down, again)
            wanted[F.job.client] = wanted.get(F.job.client, 0 * up.delta) + up.delta
        return result

    def keep(t: int, replies: list[Reply]) -> list[Reply]:
        nonlocal sent
        sent = sent + sum(reply.up.delta.dense() for reply in replies)
        return replies

    last = list(by_hand(algo, problem, call=watched, accept=keep, oracle=RememberingOracle))[-1]
    held = sum(client.e_i for client in last.clients)
    assert float(torch.linalg.vector_norm(held)) > 0.01
    np.testing.assert_allclose(sent + held, sum(wanted.values()), rtol=1e-10, atol=1e-12)


def test_local_sgd_c_clients_know_the_servers_model() -> None:
    """All they ever receive is compressed, yet after the next download they have it bit for bit."""
    algo = bind(LocalSGDC(eta=0.05, C=from_spec("any:top:0.3|sign|rand:0.5")), FULL)
    moments = list(by_hand(algo, quadratic(N=FULL.N)))
    for before, after in pairwise(moments):
        for client in after.clients:
            assert torch.equal(client.theta, before.server.theta)
    assert moments[-1].server.t == FULL.T


def test_local_sgd_c_draws_anew_at_every_step() -> None:
    """A server that sent the same element every time would never move the others."""
    thetas = simulate(
        bind(LocalSGDC(eta=0.05, C=from_spec("rand:0.2")), FULL), quadratic(N=FULL.N)
    ).thetas
    moved = np.diff(np.array(thetas), axis=0) != 0
    assert (moved.sum(axis=1) <= 1).all()
    assert moved.any(axis=0).all()


def test_local_sgd_c_refuses_to_correct_a_model_that_is_not_there() -> None:
    def one_is_lost(t: int, replies: list[Reply]) -> list[Reply]:
        return replies[:-1] if t == 3 else replies

    steps = by_hand(bind(LocalSGDC(eta=0.05), FULL), quadratic(N=FULL.N), accept=one_is_lost)
    with pytest.raises(WireError, match="corrects the model of step 4.* has that of step 3"):
        list(steps)
