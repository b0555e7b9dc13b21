"""What methods with Muon's step become in special cases, and how far one step goes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import pytest
import torch

from tests.by_hand import by_hand
from tests.identities.test_invariants import all_arrive, some_are_lost
from tests.problem import simulate
from tunefree.core import Shapes, System, bind
from tunefree.geometry import newton_schulz, polar_factors, split
from tunefree.methods import FedAdam
from tunefree.methods.registry import build
from tunefree.testing import quadratic
from tunefree_evidence.baselines.fedcm import FedCM
from tunefree_evidence.baselines.fedmuon import FedMuon
from tunefree_evidence.baselines.fedmuon_liu import FedMuonLiu
from tunefree_evidence.baselines.fedmuon_server import FedMuonServer
from tunefree_evidence.baselines.local_muon import LocalMuon, MuLoCo
from tunefree_evidence.baselines.muon import joined, muon

SYS = System(N=7, S=3, K=4, T=25)
ALONE = System(N=1, S=1, K=4, T=25)
MATRICES = ((2, 3), (3, 1), (2, 2, 1))
WIDE = ((2, 3), (1, 3), (2, 2, 1))  # none is tall
MOMENTA: list[Any] = ["reset", "kept", "aggregated"]
MIXED = ((2, 3), (4,), (), (1, 2))


def thetas(method: Any, sys: System = SYS, shapes: Shapes = MATRICES, **problem: Any) -> Any:
    problem = {"N": sys.N, "d": sum(map(prod, shapes or ((13,),))), **problem}
    return np.array(simulate(bind(method, sys, shapes), quadratic(**problem)).thetas)


def same(a: Any, b: Any, rtol: float = 1e-9) -> None:
    assert not np.allclose(b[0], b[-1], rtol=1e-3)
    np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-11)


def differ(a: Any, b: Any) -> None:
    assert not np.allclose(a[-1], b[-1], rtol=1e-3)


def test_a_vector_on_the_server_is_fedadams() -> None:
    """Apart from v, which starts at ε^2 there: from 1e-12, in place of 0."""
    adam = FedAdam(eta=0.05, eta_s=0.4 * 0.1, epsilon=1e-6, beta1=0.8)
    same(
        thetas(FedMuonServer(eta=0.05, eta_s=0.1, mu=0.8, rho=0.4), shapes=None),
        thetas(adam, shapes=None),
        rtol=1e-6,
    )


def test_the_server_does_not_see_how_far_clients_go_but_where() -> None:
    """With one local step the unit of the loss and η are in D alone, which polar factors forget."""
    sys = SYS._replace(K=1)
    short = thetas(FedMuonServer(eta=0.01), sys)
    same(thetas(FedMuonServer(eta=0.3), sys), short)
    same(thetas(FedMuonServer(eta=0.01), sys, scale=1000.0), short)
    differ(thetas(FedMuonServer(eta=0.01, eta_s=0.06), sys), short)


def test_momentum_is_all_the_same_where_there_is_none() -> None:
    """μ = 0 forgets at once; only vectors would have moments."""
    reset, kept, aggregated = (thetas(LocalMuon(mu=0.0, momentum=momentum)) for momentum in MOMENTA)
    same(kept, reset)
    same(aggregated, reset)
    differ(thetas(LocalMuon(momentum="kept")), thetas(LocalMuon(momentum="aggregated")))
    differ(thetas(LocalMuon(momentum="kept")), thetas(LocalMuon()))


def test_one_client_keeps_its_momentum_by_itself_or_by_the_server() -> None:
    same(thetas(LocalMuon(momentum="kept"), ALONE), thetas(LocalMuon(momentum="aggregated"), ALONE))
    differ(thetas(LocalMuon(momentum="kept"), ALONE), thetas(LocalMuon(), ALONE))


def test_muloco_without_outer_momentum_is_local_muon_that_keeps_its_own() -> None:
    local = thetas(LocalMuon(s=0.7, momentum="kept"), shapes=MIXED)
    same(thetas(MuLoCo(mu_s=0.0), shapes=MIXED), local)
    differ(thetas(MuLoCo(), shapes=MIXED), local)


def test_fedmuon_of_liu_that_follows_no_direction_is_local_muon() -> None:
    """Its momentum is not Nesterov's, which is the same only without momentum."""
    local = thetas(LocalMuon(eta=0.02, mu=0.0, momentum="aggregated"), shapes=MIXED)
    same(thetas(FedMuonLiu(eta=0.02, mu=0.0, alpha=0.0), shapes=MIXED), local)
    differ(thetas(FedMuonLiu(eta=0.02, mu=0.0, alpha=0.1), shapes=MIXED), local)
    unlike = thetas(LocalMuon(eta=0.02, mu=0.9, momentum="aggregated"), shapes=MIXED)
    differ(thetas(FedMuonLiu(eta=0.02, mu=0.9, alpha=0.0), shapes=MIXED), unlike)


def test_the_direction_of_liu_is_what_fedcms_server_has() -> None:
    """Their servers are the same: g is the mean displacement over η K."""
    liu, cm = (
        simulate(bind(method, SYS, MATRICES), quadratic(N=7, d=13)).steps
        for method in (FedMuonLiu(eta=0.05), FedCM(eta=0.05))
    )
    for steps in (liu, cm):
        for before, after in pairwise(steps):
            moved = (before.server.theta - after.server.theta) / (0.05 * SYS.K)
            np.testing.assert_allclose(after.server.g, moved, rtol=1e-9, atol=1e-12)


def test_fedmuon_with_one_client_has_nothing_to_correct() -> None:
    """c_i = c: momentum that is kept, without Nesterov's, and no matrix is tall."""
    local = thetas(LocalMuon(eta=0.02, mu=0.0), ALONE, WIDE)
    same(thetas(FedMuon(eta=0.02, beta=1.0), ALONE, WIDE), local)
    liu = thetas(FedMuonLiu(eta=0.02, mu=0.9, alpha=0.0, clip=1e9), ALONE, WIDE)
    same(thetas(FedMuon(eta=0.02, beta=0.1), ALONE, WIDE), liu)


def test_fedmuon_averages_all_clients_or_those_who_came() -> None:
    everyone = SYS._replace(S=SYS.N)
    same(thetas(FedMuon(), everyone), thetas(FedMuon(over="sampled"), everyone))
    printed, further = thetas(FedMuon()), thetas(FedMuon(over="sampled"))
    np.testing.assert_allclose(printed[1] - printed[0], 3 / 7 * (further[1] - further[0]))


@pytest.mark.parametrize("accept", [all_arrive, some_are_lost])
def test_fedmuon_knows_the_mean_of_all_c_i(accept: Any) -> None:
    for moment in by_hand(bind(FedMuon(), SYS), quadratic(N=SYS.N), accept=accept):
        c_i = torch.stack([client.c_i for client in moment.clients])
        np.testing.assert_allclose(moment.server.c, c_i.mean(0), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_fedmuon_has_no_bias_where_local_muon_has(seed: int) -> None:
    """All clients, exact gradients, steps that vanish, and minima that are far apart."""
    sys, problem = System(N=5, S=5, K=2, T=200), quadratic(N=5, d=6, noise=0.0, seed=seed)

    def gap(name: str) -> float:
        algo = build(name, sys, {"eta": 0.06, "decay": "linear"}, shapes=((2, 3),))
        return float(np.linalg.norm(simulate(algo, problem).thetas[-1] - problem.optimum))

    assert gap("fedmuon") < 2e-3
    assert gap("local_muon") > 1


def test_muons_step_has_the_length_of_its_matrix() -> None:
    """Singular values near 1, times sqrt(rows / columns) if it is tall; vectors are not its."""
    shapes = ((8, 4), (4, 8), (3, 1), (1, 3), (5,), ())
    u = torch.from_numpy(np.random.default_rng(0).normal(size=sum(map(prod, shapes))))
    tall, wide, column, row, *_ = split(muon(u, shapes), shapes)
    first, second, *_ = split(u, shapes)
    exact = newton_schulz((first / first.norm()).view(8, 4).T.unsqueeze(0))[0].T
    torch.testing.assert_close(tall.view(8, 4), 2**0.5 * exact)
    exact = newton_schulz((second / second.norm()).view(1, 4, 8))[0]
    torch.testing.assert_close(wide.view(4, 8), exact)
    assert float(column.norm()) == pytest.approx(3**0.5)
    assert float(row.norm()) == pytest.approx(1)
    assert torch.equal(polar_factors(u, None), u / u.norm())
    kept = joined(u, 0 * u, shapes)
    assert torch.equal(kept[:70], u[:70])
    assert not kept[70:].any()
    assert torch.equal(joined(u, 0 * u, None), 0 * u)


def test_the_loss_has_no_unit_for_muon_clients() -> None:
    """Matrices alone, no clipping: a power of two in the loss changes no bit."""
    for method in (LocalMuon(clip=1e9), MuLoCo(clip=1e9), FedMuonLiu(clip=1e9), FedMuon()):
        one, other = (thetas(method, scale=scale) for scale in (1.0, 1024.0))
        assert one.tobytes() == other.tobytes()
        differ(thetas(replace(method, eta=2 * method.eta)), one)
