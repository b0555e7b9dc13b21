"""The buffered schedule: without delays it is the synchronous one; when jobs run is irrelevant."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from tests.problem import CountingStates, simulate_buffered
from tests.schedule.naive import eager
from tests.variants import every_algorithm
from tunefree.core import Algorithm, Exchange, System, Vec, bind
from tunefree.errors import ConfigError
from tunefree.fleet.job import Done, Job
from tunefree.fleet.pool import Pool
from tunefree.fleet.serial import Serial
from tunefree.methods.fedavg import FedAvg
from tunefree.methods.fedbuff import FedBuff
from tunefree.methods.padamfed import PAdaMFed
from tunefree.schedule.delays import LAWS, Trace
from tunefree.schedule.exchange import Step
from tunefree.schedule.simulate import simulate as play
from tunefree.settings import Schedule
from tunefree.testing import Problem, QuadraticOracle, quadratic
from tunefree_evidence.baselines.ca2fl import CA2FL

SYS = System(N=9, S=3, K=2, T=25)
MILD = LAWS["mild"]


def equal(ours: Any, theirs: Any) -> bool:
    return all(
        torch.equal(torch.as_tensor(a), torch.as_tensor(b))
        for a, b in zip(ours, theirs, strict=True)
    )


def serial(algo: Algorithm, problem: Problem) -> tuple[Serial, Vec]:
    theta0 = torch.from_numpy(problem.theta0)
    return Serial(algo, theta0, lambda job: QuadraticOracle(problem, job)), theta0


@every_algorithm
def test_with_no_more_jobs_than_a_step_takes_it_is_synchronous(algo: Algorithm) -> None:
    """Bit for bit: cohorts, noise, server, clients' states, traffic and virtual time."""
    problem, S = quadratic(N=algo.sys.N), algo.sys.S
    fleets = [serial(algo, problem)[0] for _ in range(2)]
    theta0 = torch.from_numpy(problem.theta0)
    if len(algo.round()) > 1:
        with pytest.raises(ConfigError, match="needs 2 exchanges a round"):
            play(algo, fleets[1], theta0, 3, Schedule("buffered", S))
        return
    together = zip(
        play(algo, fleets[0], theta0, 3, Schedule(delays="mild")),
        play(algo, fleets[1], theta0, 3, Schedule("buffered", S)),
        strict=True,
    )
    for expected, ours in together:
        assert equal(ours.server, expected.server)
        assert ours._replace(server=None) == expected._replace(server=None)
        for client in range(algo.sys.N):
            assert equal(fleets[1].states[client], fleets[0].states[client])
    assert ours.t == algo.sys.T - 1
    assert ours.virtual_seconds > algo.sys.T


@pytest.mark.parametrize(("dropout", "timeout"), [(0.0, 8.0), (0.3, 8.0), (0.2, 4.0)])
@pytest.mark.parametrize("delays", [MILD, Trace(((1.0,), (1.0, 3.0), (2.0, 5.0)) * 3)])
@pytest.mark.parametrize(
    ("dispatch", "concurrency"), [("flush", 3), ("flush", 7), ("immediate", 7), ("queue", 8)]
)
def test_work_done_at_the_download_gives_the_same(
    dispatch: Any, concurrency: int, delays: Any, dropout: float, timeout: float
) -> None:
    """And so does a naive simulator; the trace makes many uploads arrive together."""
    problem, algo = quadratic(N=SYS.N, seed=4), bind(CA2FL(eta=0.05), SYS)
    setting = (concurrency, dispatch, delays, dropout, timeout)
    (opening, *steps), fleet = simulate_buffered(algo, problem, *setting)
    assert (opening.t, opening.traffic, opening.virtual_seconds) == (-1, (), 0)
    for step, moment in zip(steps, eager(algo, problem, *setting), strict=True):
        assert step.virtual_seconds == moment.time
        used = [(i, step.t - tau) for i, tau in zip(step.clients, step.staleness, strict=True)]
        assert used == moment.used
        assert equal(step.server, moment.server)
    for client, state in enumerate(moment.clients):
        assert equal(fleet.states[client], state)


def test_worker_processes_change_nothing() -> None:
    problem, algo = quadratic(N=SYS.N), bind(PAdaMFed(), SYS)
    theta0 = torch.from_numpy(problem.theta0)
    expected = simulate_buffered(algo, problem, 7, dropout=0.2).steps
    pool = Pool(algo, theta0, lambda job: QuadraticOracle(problem, job), workers=2)
    try:
        steps = list(play(algo, pool, theta0, 0, Schedule("buffered", 7, dropout=0.2)))
    finally:
        pool.close()
    for mine, theirs in zip(steps, expected, strict=True):
        assert equal(mine.server, theirs.server)
        assert mine.in_flight.keys() == theirs.in_flight.keys()
        assert all(equal(mine.in_flight[t], theirs.in_flight[t]) for t in theirs.in_flight)
        assert mine._replace(server=None, in_flight={}) == theirs._replace(
            server=None, in_flight={}
        )


class Watched:
    """A fleet that records the jobs before it passes them on."""

    def __init__(self, fleet: Serial) -> None:
        self._fleet, self.jobs = fleet, list[Job]()
        self.states = fleet.states = CountingStates(fleet.states)

    def work(self, jobs: Sequence[Job]) -> list[Done]:
        self.jobs += jobs
        return self._fleet.work(jobs)

    def close(self) -> None:
        """Nothing to stop."""


@pytest.mark.parametrize("dispatch", ["flush", "immediate", "queue"])
def test_jobs_carry_the_model_of_their_download(dispatch: Any) -> None:
    problem, algo = quadratic(N=SYS.N), bind(FedAvg(eta=0.05), SYS)
    fleet, theta0 = serial(algo, problem)
    watched = Watched(fleet)
    thetas = [theta0]
    schedule = Schedule("buffered", 7, dispatch, dropout=0.4)
    for step in play(algo, watched, theta0, 1, schedule):
        if step.t >= 0:
            thetas.append(step.server.theta)
            assert step.clients == sorted(set(step.clients))
    assert [len(thetas) - 1, len(watched.jobs)] == [SYS.T, SYS.T * SYS.S]
    assert all(torch.equal(job.down.theta, thetas[job.t]) for job in watched.jobs)
    assert watched.states.accepted == [job.key for job in watched.jobs]
    assert len({job.key for job in watched.jobs}) == len(watched.jobs)


@pytest.mark.parametrize(
    ("dispatch", "downloads"),
    [("flush", [7, 3, 3, 3]), ("queue", [7, 3, 3, 3]), ("immediate", [9, 3, 3, 3])],
)
def test_downloads_count_where_their_model_was_made(dispatch: Any, downloads: list[int]) -> None:
    sys = SYS._replace(T=4)
    _, *steps = simulate_buffered(bind(FedAvg(), sys), quadratic(N=sys.N), 7, dispatch).steps
    one = 64 * quadratic().d
    for step, expected in zip(steps, downloads, strict=True):
        down, up = step.traffic
        assert (down.direction, down.messages, down.bits) == ("down", expected, expected * one)
        assert (up.direction, up.messages, up.bits) == ("up", 3, 3 * one)
        assert step.samples == sys.S * sys.K


def test_lost_jobs_cost_downloads_but_no_samples() -> None:
    _, *steps = simulate_buffered(bind(FedAvg(), SYS), quadratic(N=SYS.N), 7, dropout=0.5).steps
    assert sum(step.traffic[0].messages for step in steps) > 1.5 * SYS.T * SYS.S
    assert {step.samples for step in steps} == {SYS.S * SYS.K}


def test_only_models_in_use_are_kept() -> None:
    """One client takes forever; the others' old models are dropped."""
    sys = System(N=9, S=3, K=1, T=60)
    problem, algo = quadratic(N=sys.N), bind(FedAvg(), sys)
    fleet, theta0 = serial(algo, problem)
    delays = Trace(((1e9,), *((1.0 + i / 8,) for i in range(8))))
    models: list[weakref.ref[Vec]] = []
    for step in play(algo, fleet, theta0, 0, Schedule("buffered", 9), delays=delays):
        models.append(weakref.ref(step.server.theta))
        del step
        alive = sum(model() is not None for model in models)
        assert alive <= 9 + 2  # each job's, the first and the last
    assert len(models) == sys.T + 1


@dataclass(frozen=True)
class TwoTrips(FedAvg):
    def round(self) -> tuple[Exchange, ...]:
        return super().round() * 2


def test_two_exchanges_a_round_are_refused() -> None:
    with pytest.raises(ConfigError, match="^FedAvg needs 2 exchanges a round; the buffered sched"):
        simulate_buffered(bind(TwoTrips(), SYS), quadratic(N=SYS.N), 5)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            {"concurrency": 2},
            "concurrency = 2 is out of range; .* = flush .* from per_round = 3 to clients = 9$",
        ),
        (
            {"concurrency": 10},
            "concurrency = 10 is out of range; .* from per_round = 3 to clients = 9$",
        ),
        (
            {"concurrency": 8, "dispatch": "immediate"},
            "concurrency = 8 is out of range; .* = 3 to clients - per_round \\+ 1 = 7$",
        ),
        ({"dropout": 1.0}, "dropout = 1.0 is too large; it must be below 1$"),
        ({"dropout": -0.1}, "dropout = -0.1 is too small; it must be at least 0$"),
        ({"timeout": -1.0}, "timeout = -1.0 is too small"),
        ({"timeout": float("inf")}, "timeout = inf is too large"),
        ({"timeout": 0.5}, "1000 jobs in a row got no reply with dropout = 0 and timeout = 0.5"),
    ],
)
def test_settings_that_cannot_work_are_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        simulate_buffered(bind(FedAvg(), SYS), quadratic(N=SYS.N), **({"concurrency": 5} | setting))


@pytest.mark.parametrize(
    ("dispatch", "most"), [("flush", SYS.N), ("queue", SYS.N), ("immediate", SYS.N - SYS.S + 1)]
)
def test_all_clients_can_be_busy(dispatch: Any, most: int) -> None:
    for concurrency in (SYS.S, most):
        trace = simulate_buffered(
            bind(FedAvg(), SYS), quadratic(N=SYS.N), concurrency, dispatch, dropout=0.3
        )
        assert trace.steps[-1].t == SYS.T - 1


def test_a_reply_that_is_not_finite_is_skipped_and_after_three_its_client_too() -> None:
    problem = quadratic(N=SYS.N)
    problem.b[4] = np.nan
    reasons: list[str] = []
    steps = simulate_buffered(bind(FedBuff(), SYS), problem, 7).steps[1:]
    for step, cohort in zip(steps, cohorts(bind(FedBuff(), SYS)), strict=True):
        assert step.clients == [client for client in cohort if client != 4]
        assert {each.client for each in step.absent} <= {4} & set(cohort)
        reasons += [each.reason for each in step.absent]
        assert torch.isfinite(step.server.theta).all()
    assert reasons[:2] == ["`delta` is not finite"] * 2
    assert reasons[2].endswith("3 times in a row: quarantined until readmitted")


def cohorts(algo: Algorithm) -> list[Sequence[int]]:
    return simulate_buffered(algo, quadratic(N=SYS.N), 7).cohorts


def test_the_opening_waits_for_the_slowest_of_all() -> None:
    delays = Trace(tuple((float(i), 1.0) for i in range(1, 10)))
    steps = simulate_buffered(bind(PAdaMFed(), SYS), quadratic(N=SYS.N), 3, delays=delays).steps
    assert [step.virtual_seconds for step in steps[:2]] == [9, 10]
    steps = simulate_buffered(
        bind(PAdaMFed(), SYS), quadratic(N=SYS.N), 3, delays=delays, opening="zero"
    ).steps
    assert [steps[0].virtual_seconds, steps[0].traffic] == [0, ()]
    assert steps[1].virtual_seconds == 1 + max(steps[1].clients)


def test_synchronous_time_is_that_of_the_slowest() -> None:
    delays = Trace(tuple((float(i + 1),) for i in range(9)))

    def times(algo: Algorithm) -> list[Step]:
        fleet, theta0 = serial(algo, quadratic(N=SYS.N))
        return list(play(algo, fleet, theta0, 0, delays=delays))

    for algo, trips in [(bind(FedAvg(), SYS), 1), (bind(TwoTrips(), SYS), 2)]:
        steps = times(algo)
        waits = np.diff([step.virtual_seconds for step in steps])
        assert waits.tolist() == [trips * (1 + max(step.clients)) for step in steps[1:]]
        assert steps[0].virtual_seconds == 0
    fleet, theta0 = serial(bind(FedAvg(), SYS), quadratic(N=SYS.N))
    assert {step.virtual_seconds for step in play(bind(FedAvg(), SYS), fleet, theta0, 0)} == {0.0}


def test_more_jobs_at_once_make_steps_more_frequent() -> None:
    def hours(concurrency: int) -> float:
        algo = bind(FedAvg(), System(N=20, S=4, K=1, T=50))
        return simulate_buffered(algo, quadratic(N=20), concurrency).steps[-1].virtual_seconds

    assert hours(4) > 1.8 * hours(8) > 1.8 * 1.5 * hours(16)
