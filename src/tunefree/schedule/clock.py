"""When replies arrive: after virtual seconds here, real ones in a deployment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from tunefree.core import Message
from tunefree.fleet.job import Done, Job
from tunefree.schedule.delays import Delays
from tunefree.schedule.exchange import Absence


class Buffer(NamedTuple):
    """What fills one buffer: replies in client order, no client twice."""

    time: float
    jobs: list[Job]
    done: Sequence[Done]
    downloads: int  # since the last buffer, including those of lost jobs
    awaited: Collection[int] = ()  # steps whose models clients still work on
    absent: tuple[Absence, ...] = ()  # clients whose jobs are known to be lost
    joined: Sequence[tuple[Job, Done]] = ()  # openings that new clients have completed


class Clock(Protocol):
    """How time passes for the synchronous loop."""

    def wait_for(self, clients: Sequence[int], trips: int) -> float:
        """The time when all have replied, `trips` times in a row."""

    def replay(self, steps: int, cohort: Callable[[int], Sequence[int]], trips: int) -> None:
        """Advance the clock by the steps that were taken before the run was resumed."""


class BufferClock(Clock, Protocol):
    """How time passes for the buffered loop."""

    def fill(self, t: int, downs: Mapping[int, Message], joining: Sequence[Job]) -> Buffer:
        """Send the model of step t, and wait until S replies to it or older ones have arrived."""


class VirtualClock:
    """Every job takes as long as its law of delays says; without one, no time passes."""

    def __init__(self, delays: Delays | None, seed: int) -> None:
        self.now = 0.0
        self._delays, self._seed = delays, seed
        self._jobs = Counter[int]()

    def seconds(self, client: int) -> float:
        """How long the client's next job takes."""
        if self._delays is None:
            return 0.0
        self._jobs[client] += 1
        return self._delays.duration(self._seed, client, self._jobs[client] - 1)

    def wait_for(self, clients: Sequence[int], trips: int) -> float:
        if self._delays is not None:
            self.now += sum(max(map(self.seconds, clients), default=0.0) for _ in range(trips))
        return self.now

    def replay(self, steps: int, cohort: Callable[[int], Sequence[int]], trips: int) -> None:
        for t in range(steps if self._delays is not None else 0):
            self.wait_for(cohort(t), trips)
