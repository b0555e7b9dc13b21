"""Schedules: what one cannot run is refused; a simulation has all clients and a virtual clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from tunefree.core import Algorithm, Vec, about
from tunefree.errors import ConfigError
from tunefree.fleet import choice
from tunefree.fleet.job import Fleet
from tunefree.fleet.states import States, Stored
from tunefree.fleet.summed import Summed
from tunefree.fleet.work import DataClients
from tunefree.schedule.buffered import buffered
from tunefree.schedule.clock import BufferClock, Clock, VirtualClock
from tunefree.schedule.delays import Delays, from_spec
from tunefree.schedule.exchange import Release, Step
from tunefree.schedule.membership import Everybody, Membership
from tunefree.schedule.sync import synchronous
from tunefree.schedule.timeline import Timeline
from tunefree.settings import FleetName, Schedule


def simulate(
    algo: Algorithm,
    fleet: Fleet,
    theta0: Vec,
    seed: int,
    schedule: Schedule = Schedule(),
    after: Step | None = None,
    *,
    delays: Delays | None = None,
    release: Release | None = None,
) -> Iterator[Step]:
    """The opening as step -1, then the T server steps; or only those after a given one.

    `delays` replaces the law that the schedule names.
    """
    check(schedule, algo)
    members = Everybody(algo, seed)
    clock = virtual_clock(members, schedule, fleet, delays)
    return play(fleet, members, clock, theta0, schedule, after, release)


@dataclass(frozen=True)
class Simulation:
    """A simulated environment: all clients are in this process and its workers."""

    members: Everybody
    clients: DataClients
    fleet: FleetName
    workers: int
    schedule: Schedule
    secure: bool = False

    def start(self, stored: Stored) -> Fleet:
        algo, theta0 = self.members.algo, self.clients.objective.theta0
        states = States(self.clients.first_state(algo), stored)
        fleet = choice.start(self.fleet, algo, self.clients, self.workers, states)
        return Summed(fleet, algo, theta0) if self.secure else fleet

    def steps(
        self, fleet: Fleet, theta0: Vec, after: Step | None, release: Release | None = None
    ) -> Iterator[Step]:
        clock = virtual_clock(self.members, self.schedule, fleet)
        return play(fleet, self.members, clock, theta0, self.schedule, after, release)


def play(
    fleet: Fleet,
    members: Membership,
    clock: Clock,
    theta0: Vec,
    schedule: Schedule,
    after: Step | None = None,
    release: Release | None = None,
) -> Iterator[Step]:
    """The steps of this schedule, simulated or deployed; `after` is the one to resume after."""
    if schedule.name == "synchronous":
        return synchronous(fleet, members, clock, theta0, schedule.opening, after, release)
    filling = cast("BufferClock", clock)
    return buffered(fleet, members, filling, theta0, schedule.opening, after, release)


def virtual_clock(
    members: Everybody, schedule: Schedule, fleet: Fleet, delays: Delays | None = None
) -> Clock:
    """The clock of a simulation; `delays` replaces the law that the schedule names."""
    sys = members.algo.sys
    if delays is None and (schedule.delays or schedule.name == "buffered"):
        delays = from_spec(schedule.delays or "mild", sys.N)
    clock = VirtualClock(delays, members.seed)
    if schedule.name == "synchronous":
        return clock
    assert delays is not None
    return Timeline(
        members.seed,
        sys,
        concurrency=schedule.concurrency or sys.S,
        dispatch=schedule.dispatch,
        clock=clock,
        dropout=schedule.dropout,
        timeout=schedule.timeout or delays.longest,
        fleet=fleet,
        odds=members.odds,
        gauge=members.gauge,
    )


def check(schedule: Schedule, algo: Algorithm) -> None:
    """Refuse what this schedule cannot run, before anything runs."""
    check_messages(algo)
    (N, S, _, _), trips = algo.sys, len(algo.round())
    if schedule.delays:
        from_spec(schedule.delays, N)
    if schedule.name == "synchronous":
        if schedule != Schedule(delays=schedule.delays, opening=schedule.opening):
            raise ConfigError(
                "{concurrency}, {dispatch}, {dropout} and {timeout} belong to the buffered "
                "schedule",
                "omit them, or choose {schedule} = buffered",
            )
        return
    if trips != 1:
        raise ConfigError(
            f"{about(algo).title} needs {trips} exchanges a round; the buffered schedule allows one"
        )
    most, where = N, "{clients}"
    if schedule.dispatch == "immediate":
        most, where = N - S + 1, "{clients} - {per_round} + 1"
    if not S <= (schedule.concurrency or S) <= most:
        raise ConfigError(
            "is out of range",
            f"with {{dispatch}} = {schedule.dispatch} give a number from {{per_round}} = {S} to "
            f"{where} = {most}",
            setting="concurrency",
            value=schedule.concurrency,
        )


def check_messages(algo: Algorithm) -> None:
    """Refuse an algorithm that does not declare its messages."""
    try:
        kinds = [kind for e in (*algo.opening(), *algo.round()) for kind in (e.Down, e.Up)]
        why = next(
            (f"{kind!r} is not a NamedTuple" for kind in kinds if not hasattr(kind, "_fields")), ""
        )
    except TypeError as error:
        why = str(error)
    if why:
        raise ConfigError(
            f"{about(algo).title} does not declare its messages ({why}); write each exchange as "
            "Exchange(Down, Up, down, work, up), with NamedTuples as Down and Up"
        )
