"""The methods with Muon's step against their pages, over systems and layouts."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

from evidence.tests.baselines.fedmuon import fedmuon
from evidence.tests.baselines.fedmuon_liu import fedmuon_liu
from evidence.tests.baselines.fedmuon_server import fedmuon_server
from evidence.tests.baselines.local_muon import local_muon, muloco
from tests.problem import simulate
from tests.shaped import ALIKE, KERNEL, WIDE, problem_of
from tests.twins.test_twins import SYSTEMS, agree
from tunefree.core import Shapes, System, bind
from tunefree_evidence.baselines.fedmuon import FedMuon
from tunefree_evidence.baselines.fedmuon_liu import FedMuonLiu
from tunefree_evidence.baselines.fedmuon_server import FedMuonServer
from tunefree_evidence.baselines.local_muon import LocalMuon, MuLoCo

PARTIAL = System(N=7, S=3, K=4, T=30)
VECTOR = ((5,),)

all_systems = pytest.mark.parametrize("sys", SYSTEMS)
two_systems = pytest.mark.parametrize("sys", [SYSTEMS[1], SYSTEMS[3]])  # some clients; one step
all_layouts = pytest.mark.parametrize(
    "shapes", [WIDE, KERNEL, ALIKE, VECTOR], ids=["wide", "kernel", "alike", "vector"]
)
all_momenta = pytest.mark.parametrize("momentum", ["reset", "kept", "aggregated"])


def both(algo: Any, page: Any, sys: System, shapes: Any, *given: Any, **more: Any) -> None:
    """A model that is one vector is bound as such: without shapes."""
    problem = problem_of(sys, shapes)
    trace = simulate(bind(algo, sys, None if shapes == VECTOR else shapes), problem)
    agree(trace.thetas, page(problem, trace.cohorts, sys.K, shapes, *given, **more), sys.T)


@all_layouts
@all_systems
def test_fedmuon_server(sys: System, shapes: Shapes) -> None:
    algo = FedMuonServer(eta=0.05, eta_s=0.1, mu=0.8, rho=0.4)
    both(algo, fedmuon_server, sys, shapes, 0.05, 0.1, 0.8, 0.4)


@all_momenta
@all_layouts
@two_systems
def test_local_muon(sys: System, shapes: Shapes, momentum: Any) -> None:
    algo = LocalMuon(eta=0.03, mu=0.8, rho=0.4, s=0.9, momentum=momentum)
    both(algo, local_muon, sys, shapes, momentum, 0.03, 0.8, 0.4, 0.9)


@all_momenta
def test_short_gradients_and_short_weights(momentum: Any) -> None:
    """Clipping and weight decay, which change nothing elsewhere."""
    algo = LocalMuon(eta=0.03, clip=0.5, weight_decay=0.3, momentum=momentum)
    page = (momentum, 0.03, 0.95, 0.1, 1)
    both(algo, local_muon, PARTIAL, WIDE, *page, clip=0.5, weight_decay=0.3)
    for other in ({"clip": 0.6}, {"weight_decay": 0.2}):
        with pytest.raises(AssertionError):
            both(
                algo,
                local_muon,
                PARTIAL,
                WIDE,
                *page,
                **{"clip": 0.5, "weight_decay": 0.3, **other},
            )


@all_layouts
@all_systems
def test_muloco(sys: System, shapes: Shapes) -> None:
    algo = MuLoCo(eta=0.03, mu=0.8, rho=0.4, s=0.6, mu_s=0.5)
    both(algo, muloco, sys, shapes, 0.03, 0.8, 0.4, 0.6, 0.5)


@all_layouts
@all_systems
def test_fedmuon_liu(sys: System, shapes: Shapes) -> None:
    algo = FedMuonLiu(eta=0.03, mu=0.8, rho=0.4, alpha=0.3, weight_decay=0.2)
    both(algo, fedmuon_liu, sys, shapes, 0.03, 0.8, 0.4, 0.3, 0.2)


@pytest.mark.parametrize("over", ["all", "sampled"])
@all_layouts
@two_systems
def test_fedmuon(sys: System, shapes: Shapes, over: Any) -> None:
    algo = FedMuon(eta=0.03, beta=0.4, over=over)
    both(algo, fedmuon, sys, shapes, 0.03, 0.4, over)


@pytest.mark.parametrize(
    ("algo", "page", "given"),
    [
        (FedMuonServer(), fedmuon_server, (0.03, 0.03, 0.9, 0.3)),
        (LocalMuon(), local_muon, ("reset", 0.02, 0.95, 0.1, 1)),
        (MuLoCo(), muloco, (0.02, 0.95, 0.1, 0.7, 0.6)),
        (FedMuonLiu(), fedmuon_liu, (0.02, 0.98, 0.1, 0.5)),
        (FedMuon(), fedmuon, (0.01, 0.9)),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_defaults(algo: Any, page: Any, given: Any) -> None:
    both(algo, page, PARTIAL, KERNEL, *given)


EMPTY = ((2, 2), (0, 3), (3, 0), (1, 1), (1,), (), (3, 1))


@pytest.mark.parametrize("algo", [FedMuonServer(), FedMuonLiu(), MuLoCo(), FedMuon(), LocalMuon()])
def test_tensors_of_one_number_or_none_do_no_harm(algo: Any) -> None:
    sys = System(N=4, S=2, K=2, T=6)
    problem = problem_of(sys, ((sum(map(prod, EMPTY)),),))
    thetas = simulate(bind(algo, sys, EMPTY), problem).thetas
    assert np.isfinite(thetas).all()
    assert not np.equal(thetas[0], thetas[-1]).any()
