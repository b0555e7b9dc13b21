"""The buffered schedule: clients work on the model they were given, and the server takes a step
whenever S uploads have come, however old the models were.

`concurrency` jobs are out at any time. Who gets a model, and when (`dispatch`):

    flush      after each step, S clients drawn from those with nothing to do; with
               concurrency = S this is the synchronous schedule, to the bit
    immediate  after each upload, one client with nothing to do
    queue      after each step, S clients drawn from all N; a busy one takes its jobs in turn

A client has something to do until its upload has been used in a step: only then does it know its
new state, so only then may its next job begin. Hence the S jobs of a buffer can be worked on when
it is full, all at once on a pool, with the same result as if each had been done at its download.
In `flush` and `queue` an upload that waits for its step counts as out, in `immediate` it does not.

A job is lost if its client falls silent (probability `dropout`) or takes longer than `timeout`.
After `timeout` its place goes to a client with nothing to do; the silent one keeps its old state,
and should it get the same model again, it does the same job again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

from tunefree.core import Algorithm, Vec
from tunefree.errors import ConfigError
from tunefree.fleet.job import Fleet, Job
from tunefree.schedule.delays import Delays, Stopwatch
from tunefree.schedule.exchange import Step, listen, sent
from tunefree.schedule.sync import Opening, opened, opening_ends
from tunefree.schedule.timeline import Dispatch, Timeline


def buffered(
    algo: Algorithm,
    fleet: Fleet,
    theta0: Vec,
    seed: int,
    *,
    concurrency: int,
    delays: Delays,
    dispatch: Dispatch = "flush",
    dropout: float = 0.0,
    timeout: float | None = None,
    opening: Opening = "gradients",
    after: Step | None = None,
) -> Iterator[Step]:
    """Yield the opening as step -1, which waits for all, then the T server steps; or only those
    after a given one.

    Downloads count in the step whose model they carry, so the first step has `concurrency` of them.
    """
    check_buffered(algo, concurrency, dispatch, dropout, timeout)
    watch = Stopwatch(delays, seed)
    start = opening_ends(algo, opening, watch)
    step = after or opened(algo, fleet, theta0, opening, start)
    if after is None:
        yield step
    (exchange,) = algo.round()
    timeline = Timeline(
        seed,
        algo.sys,
        concurrency=concurrency,
        dispatch=dispatch,
        watch=watch,
        dropout=dropout,
        timeout=delays.longest if timeout is None else timeout,
        start=start,
    )
    server, downs = step.server, dict(step.held)
    events = zip(range(algo.sys.T), timeline, strict=False)
    for t, (time, tickets, downloads, awaited) in islice(events, step.t + 1, None):
        downs[t] = down = exchange.down(server)
        jobs = [Job(i, then, "round", 0, downs[then]) for _, i, then in tickets]
        heard = listen(algo, exchange, fleet, server, t, jobs)
        server = heard.server
        downs = {then: down for then, down in downs.items() if then in awaited}
        yield Step(
            t,
            server,
            clients=[reply.client for reply in heard.replies],
            traffic=(sent(0, "down", [down] * downloads), heard.traffic),
            drawn=heard.drawn,
            time=time,
            staleness=tuple(reply.tau for reply in heard.replies),
            absent=heard.absent,
            held=downs,
        )


def check_buffered(
    algo: Algorithm,
    concurrency: int,
    dispatch: Dispatch = "flush",
    dropout: float = 0.0,
    timeout: float | None = None,
) -> None:
    """Refuse what the buffered schedule cannot play."""
    (N, S, _, _), trips = algo.sys, len(algo.round())
    if trips != 1:
        name = getattr(getattr(algo, "about", None), "title", type(algo).__name__)
        raise ConfigError(
            f"{name} needs {trips} exchanges a round; the buffered schedule allows one"
        )
    most = N - S + 1 if dispatch == "immediate" else N
    if not S <= concurrency <= most:
        where = "N - S + 1" if dispatch == "immediate" else "N"
        raise ConfigError(
            f"concurrency = {concurrency} is out of range; with dispatch = {dispatch!r} give a "
            f"number from S = {S} to {where} = {most}"
        )
    if not 0 <= dropout < 1:
        raise ConfigError(f"dropout = {dropout:g} is out of range; give a number from 0 to below 1")
    if timeout is not None and not 0 < timeout < math.inf:
        raise ConfigError(f"timeout = {timeout:g} is out of range; give a positive number")
