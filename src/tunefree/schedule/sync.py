"""The synchronous schedule: a fresh cohort every step, and the server waits for all of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tunefree.core import Algorithm, Vec
from tunefree.schedule.cohort import cohort
from tunefree.schedule.delays import Delays, Stopwatch
from tunefree.schedule.trip import Fleet, Step, play

Opening = Literal["gradients", "zero"]


def synchronous(
    algo: Algorithm,
    fleet: Fleet,
    theta0: Vec,
    seed: int,
    opening: Opening = "gradients",
    delays: Delays | None = None,
) -> Iterator[Step]:
    """Yield the opening as step -1, then the T server steps.

    `opening = "zero"` skips the first pass over all N clients: every state starts at zero.
    With `delays` a virtual clock runs: each exchange takes as long as its slowest client.
    """
    watch = Stopwatch(delays, seed) if delays else None
    step = opened(algo, fleet, theta0, opening, watch)
    yield step
    for t in range(algo.sys.T):
        clients = cohort(seed, t, algo.sys)
        time = step.time + (watch.slowest(clients, len(algo.round())) if watch else 0)
        step = play(algo, fleet, step.server, t, "round", clients)._replace(time=time)
        yield step


def opened(
    algo: Algorithm, fleet: Fleet, theta0: Vec, opening: Opening, watch: Stopwatch | None
) -> Step:
    """Step -1: the server before the first round, whatever the schedule that follows."""
    server, trips = algo.server(theta0), len(algo.opening())
    if opening == "zero" or not trips:
        return Step(-1, server, [], (), 0)
    everyone = range(algo.sys.N)
    time = watch.slowest(everyone, trips) if watch else 0.0
    return play(algo, fleet, server, -1, "opening", everyone)._replace(time=time)
