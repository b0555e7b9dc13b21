"""Schedules of simulations: checked, then run with all clients and a virtual clock."""

from __future__ import annotations

from collections.abc import Iterator

from tunefree.core import Algorithm, Vec, about
from tunefree.errors import ConfigError
from tunefree.fleet.job import Fleet
from tunefree.schedule.buffered import buffered
from tunefree.schedule.clock import VirtualClock
from tunefree.schedule.delays import Delays, from_spec
from tunefree.schedule.exchange import Step
from tunefree.schedule.membership import Everybody, Odds
from tunefree.schedule.sync import synchronous
from tunefree.schedule.timeline import Timeline
from tunefree.settings import Schedule


def simulate(
    algo: Algorithm,
    fleet: Fleet,
    theta0: Vec,
    seed: int,
    schedule: Schedule = Schedule(),
    after: Step | None = None,
    *,
    delays: Delays | None = None,
    odds: Odds = None,
) -> Iterator[Step]:
    """The opening as step -1, then the T server steps; or only those after a given one.

    `delays` replaces the law that the schedule names; `odds` are the sampling probabilities of the
    clients, if not uniform.
    """
    check(schedule, algo)
    everybody = Everybody(algo, seed, odds)
    if delays is None and (schedule.delays or schedule.name == "buffered"):
        delays = from_spec(schedule.delays or "mild", algo.sys.N)
    clock = VirtualClock(delays, seed)
    if schedule.name == "synchronous":
        return synchronous(fleet, everybody, clock, theta0, schedule.opening, after)
    assert delays is not None
    timeline = Timeline(
        seed,
        algo.sys,
        concurrency=schedule.concurrency or algo.sys.S,
        dispatch=schedule.dispatch,
        clock=clock,
        dropout=schedule.dropout,
        timeout=schedule.timeout or delays.longest,
        fleet=fleet,
        odds=odds,
    )
    return buffered(fleet, everybody, timeline, theta0, schedule.opening, after)


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
