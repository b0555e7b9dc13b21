"""The synchronous schedule: a fresh cohort every step, and the server waits for all of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tunefree.core import Algorithm, Vec
from tunefree.fleet.job import Fleet
from tunefree.schedule.cohort import cohort
from tunefree.schedule.delays import Delays, Stopwatch
from tunefree.schedule.exchange import Step, play

Opening = Literal["gradients", "zero"]


def synchronous(
    algo: Algorithm,
    fleet: Fleet,
    theta0: Vec,
    seed: int,
    opening: Opening = "gradients",
    delays: Delays | None = None,
    after: Step | None = None,
) -> Iterator[Step]:
    """Yield the opening as step -1, then the T server steps; or only those after a given one.

    `opening = "zero"` skips the first pass over all N clients: every state starts at zero.
    With `delays` a virtual clock runs: each exchange takes as long as its slowest client.
    """
    watch = Stopwatch(delays, seed) if delays else None
    start = opening_ends(algo, opening, watch)
    step = after or opened(algo, fleet, theta0, opening, start)
    if after is None:
        yield step
    for t in range(algo.sys.T):
        clients = cohort(seed, t, algo.sys)
        seconds = watch.slowest(clients, len(algo.round())) if watch else 0
        if t > step.t:
            time = step.time + seconds
            step = play(algo, fleet, step.server, t, "round", clients)._replace(time=time)
            yield step


def opening_ends(algo: Algorithm, opening: Opening, watch: Stopwatch | None) -> float:
    """The moment when all N clients have answered the opening."""
    trips = 0 if opening == "zero" else len(algo.opening())
    return watch.slowest(range(algo.sys.N), trips) if watch else 0.0


def opened(algo: Algorithm, fleet: Fleet, theta0: Vec, opening: Opening, time: float) -> Step:
    """Step -1: the server before the first round, whatever the schedule that follows."""
    server = algo.server(theta0)
    if opening == "zero" or not algo.opening():
        return Step(-1, server, [], (), 0)
    return play(algo, fleet, server, -1, "opening", range(algo.sys.N))._replace(time=time)
