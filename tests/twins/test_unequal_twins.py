"""Clients with unequal work and unequal weights, against the pages with K_i and p_i in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.problem import UnequalOracle, own_steps, simulate, simulate_buffered, unequal
from tests.shaped import WIDE
from tests.shaped import problem_of as with_tensors
from tests.twins.fedavg import fedavg
from tests.twins.padamfed import padamfed
from tests.twins.polarfl import polarfl
from tests.twins.polarfl_stateless import polarfl_stateless
from tests.twins.scaffold import scaffold
from tests.twins.test_twins import agree, problem_of
from tests.variants import METHODS
from tunefree.core import Algorithm, Reply, System, about, bind
from tunefree.fleet.job import exchanges
from tunefree.fleet.work import of_client
from tunefree.methods.fedavg import FedAvg
from tunefree.methods.padamfed import PAdaMFed
from tunefree.methods.polarfl import PolarFL
from tunefree.methods.polarfl_stateless import PolarFLStateless
from tunefree.methods.registry import build
from tunefree.methods.scaffold import Scaffold
from tunefree.testing import quadratic

SYSTEMS = [
    pytest.param(unequal(System(N=7, S=3, K=0, T=30)), id="partial"),
    pytest.param(unequal(System(N=4, S=4, K=0, T=12)), id="full"),
    pytest.param(unequal(System(N=1, S=1, K=0, T=20)), id="alone"),  # K_i = K
]
all_systems = pytest.mark.parametrize("sys", SYSTEMS)


def steps_of(sys: System) -> list[int]:
    return [own_steps(i) for i in range(sys.N)]


def test_the_clients_differ() -> None:
    assert steps_of(unequal(System(7, 3, 0, 9))) == [4, 6, 10, 14, 18, 20, 24]
    assert unequal(System(7, 3, 0, 9)).K == 14


@pytest.mark.parametrize("weighting", ["uniform", "examples"])
@all_systems
def test_fedavg(sys: System, weighting: Any) -> None:
    problem = problem_of(sys)
    algo = bind(FedAvg(eta=0.03, s=1.2, weighting=weighting), sys)
    trace = simulate(algo, problem, oracle=UnequalOracle)
    sizes = [5 + 7 * i for i in range(sys.N)] if weighting == "examples" else None
    page = fedavg(problem, trace.cohorts, sys.K, 0.03, 1.2, sizes, steps_of(sys))
    agree(trace.thetas, page, sys.T)


@pytest.mark.parametrize("start", ["zero", "gradients"])
@all_systems
def test_scaffold(sys: System, start: Any) -> None:
    problem = problem_of(sys)
    trace = simulate(bind(Scaffold(eta=0.02, start=start), sys), problem, oracle=UnequalOracle)
    page = scaffold(problem, trace.cohorts, sys.K, 0.02, 1.0, "II", start, steps_of(sys))
    agree(trace.thetas, page, sys.T)


@pytest.mark.parametrize("start", ["zero", "gradients"])
@all_systems
def test_padamfed(sys: System, start: Any) -> None:
    problem = problem_of(sys)
    trace = simulate(bind(PAdaMFed(), sys), problem, start, UnequalOracle)
    agree(trace.thetas, padamfed(problem, trace.cohorts, sys.K, start, steps_of(sys)), sys.T)


ONE_BIT = 1e-8  # steps are sent in single precision, where the last bit may differ


@pytest.mark.parametrize("first_pass", ["off", "on"])
@all_systems
def test_polarfl(sys: System, first_pass: Any) -> None:
    problem = with_tensors(sys, WIDE)
    algo = bind(PolarFL(first_pass=first_pass), sys, WIDE)
    trace = simulate(algo, problem, oracle=UnequalOracle)
    page = polarfl(problem, trace.uploads, sys.K, WIDE, first_pass=first_pass, own_K=steps_of(sys))
    agree(trace.thetas, page, sys.T, atol=ONE_BIT)


@all_systems
def test_polarfl_stateless(sys: System) -> None:
    problem = with_tensors(sys, WIDE)
    trace = simulate(bind(PolarFLStateless(), sys, WIDE), problem, oracle=UnequalOracle)
    page = polarfl_stateless(problem, trace.uploads, sys.K, WIDE, own_K=steps_of(sys))
    agree(trace.thetas, page, sys.T, atol=ONE_BIT)


def test_polarfl_with_late_clients() -> None:
    sys = unequal(System(N=7, S=3, K=0, T=30))
    problem = with_tensors(sys, WIDE)
    trace = simulate_buffered(bind(PolarFL(), sys, WIDE), problem, 6, oracle=UnequalOracle)
    agree(
        trace.thetas,
        polarfl(problem, trace.uploads, sys.K, WIDE, own_K=steps_of(sys)),
        sys.T,
        ONE_BIT,
    )


MEANS = [name for name, cls in METHODS.items() if cls.about.means]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", MEANS)
def test_c_is_the_mean_of_all_c_i(name: str, late: bool) -> None:
    sys = unequal(System(N=7, S=3, K=0, T=15))
    algo, problem = build(name, sys, shapes=((2, 2), ())), quadratic(N=sys.N)
    trace = (
        simulate_buffered(algo, problem, 5, oracle=UnequalOracle)
        if late
        else simulate(algo, problem, oracle=UnequalOracle)
    )
    for c, c_i in about(algo).means.items():
        held = [np.asarray(getattr(trace.fleet.states[i], c_i)) for i in range(sys.N)]
        np.testing.assert_allclose(getattr(trace.server, c), np.mean(held, axis=0), atol=1e-12)
        assert np.linalg.norm(getattr(trace.server, c)) > 0.01


@pytest.mark.parametrize("name", METHODS)
def test_a_client_keeps_the_servers_steps(name: str) -> None:
    """Only its K differs: no step size differs on its side."""
    algo = build(name, System(N=7, S=3, K=10, T=90))
    client = of_client(algo, 3)
    assert client.sys == algo.sys._replace(K=3)
    for field in vars(algo):
        assert field == "sys" or getattr(client, field) == getattr(algo, field)


# Weighting by examples: a client with n samples counts as n clients with one.

WEIGHED = [name for name, cls in METHODS.items() if cls.about.weights or name == "fedavg"]
SMALL = System(N=3, S=3, K=2, T=9)


def uploads(algo: Algorithm, stage: Any, number: int, server: Any) -> list[Any]:
    exchange = exchanges(algo, stage, 0)[number]
    problem, down = quadratic(N=3, d=5), exchange.down(server)
    theta0 = torch.from_numpy(problem.theta0)
    found = []
    for i in range(3):
        job = type("Job", (), {"client": i, "t": 0, "exchange": number})()
        oracle = UnequalOracle(problem, job)
        found.append(exchange.work(algo.client(theta0), down, oracle)[1])
    return found


@pytest.mark.parametrize("name", WEIGHED)
def test_n_samples_count_as_n_clients(name: str) -> None:
    equal = build(name, SMALL)
    weighed = build(name, SMALL, {"weighting": "examples"})
    sizes, stages = (1, 4, 2), (("opening", equal.opening()), ("round", equal.round()))
    mattered = False
    server = start = equal.server(torch.from_numpy(quadratic(d=5).theta0))
    for stage, played in stages:
        for number, _ in enumerate(played):
            ups = uploads(equal, stage, number, server)
            replies = [Reply(i, n, 0, up) for i, (n, up) in enumerate(zip(sizes, ups, strict=True))]
            many = [r._replace(n=1) for r in replies for _ in range(r.n)]
            one = exchanges(weighed, stage, 0)[number].up(server, replies)  # type: ignore[arg-type]
            other = exchanges(equal, stage, 0)[number].up(server, many)  # type: ignore[arg-type]
            plain = exchanges(equal, stage, 0)[number].up(server, replies)  # type: ignore[arg-type]
            for mine, theirs, unweighed in zip(one, other, plain, strict=True):
                mine, theirs = torch.as_tensor(mine), torch.as_tensor(theirs)
                torch.testing.assert_close(mine, theirs)
                mattered = mattered or not torch.allclose(mine, torch.as_tensor(unweighed))
            server = other
    assert not torch.equal(server.theta, start.theta)
    assert mattered


def test_weighting_and_decay_can_be_combined() -> None:
    algo: Any = build("fedadam", SMALL, {"weighting": "examples", "decay": "linear"})
    problem = quadratic(N=3)
    both = simulate(algo, problem, oracle=UnequalOracle).thetas
    for alone in ({"weighting": "examples"}, {"decay": "linear"}):
        only = simulate(build("fedadam", SMALL, alone), problem, oracle=UnequalOracle).thetas
        assert not np.allclose(both[-1], only[-1])
    assert about(algo).title == "FedAdam, linear decay, by examples"
