"""The synchronous schedule: a fresh cohort every step, and the server waits for all of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tunefree.core import Algorithm, Vec
from tunefree.schedule.cohort import cohort
from tunefree.schedule.trip import Fleet, Step, play

Opening = Literal["gradients", "zero"]


def synchronous(
    algo: Algorithm, fleet: Fleet, theta0: Vec, seed: int, opening: Opening = "gradients"
) -> Iterator[Step]:
    """Yield the opening as step -1, then the T server steps.

    `opening = "zero"` skips the first pass over all N clients: every state starts at zero.
    """
    step = Step(-1, algo.server(theta0), [], (), 0)
    if opening == "gradients" and algo.opening():
        step = play(algo, fleet, step.server, -1, "opening", range(algo.sys.N))
    yield step
    for t in range(algo.sys.T):
        step = play(algo, fleet, step.server, t, "round", cohort(seed, t, algo.sys))
        yield step
