"""Which schedule, as settings say it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tunefree.core import Algorithm, System, Vec
from tunefree.errors import ConfigError
from tunefree.fleet.job import Fleet
from tunefree.schedule.buffered import buffered, check_buffered
from tunefree.schedule.delays import from_spec
from tunefree.schedule.exchange import Step
from tunefree.schedule.sync import Opening, synchronous
from tunefree.schedule.timeline import Dispatch


@dataclass(frozen=True)
class Schedule:
    """Synchronous rounds or buffered steps; zero and empty stand for what is usual."""

    name: Literal["synchronous", "buffered"] = "synchronous"
    concurrency: int = 0  # jobs out at a time; 0 is S
    dispatch: Dispatch = "flush"
    delays: str = ""  # a law or a trace file; empty is no clock, or mild where one is needed
    dropout: float = 0.0
    timeout: float = 0.0  # 0 is the longest delay
    opening: Opening = "gradients"

    def check(self, algo: Algorithm) -> None:
        """Refuse what this schedule cannot play, before anything is played."""
        if self.delays:
            from_spec(self.delays, algo.sys.N)
        if self.name == "buffered":
            check_buffered(
                algo, self._jobs(algo.sys), self.dispatch, self.dropout, self.timeout or None
            )
        elif self.concurrency or self.dropout or self.timeout or self.dispatch != "flush":
            raise ConfigError(
                "schedule.concurrency, dispatch, dropout and timeout belong to the buffered "
                "schedule; leave them out, or set schedule.name = 'buffered'"
            )

    def steps(
        self, algo: Algorithm, fleet: Fleet, theta0: Vec, seed: int, after: Step | None = None
    ) -> Iterator[Step]:
        """The opening as step -1, then the T server steps; or only those after a given one."""
        N = algo.sys.N
        if self.name == "synchronous":
            delays = from_spec(self.delays, N) if self.delays else None
            return synchronous(algo, fleet, theta0, seed, self.opening, delays, after)
        return buffered(
            algo,
            fleet,
            theta0,
            seed,
            concurrency=self._jobs(algo.sys),
            delays=from_spec(self.delays or "mild", N),
            dispatch=self.dispatch,
            dropout=self.dropout,
            timeout=self.timeout or None,
            opening=self.opening,
            after=after,
        )

    def _jobs(self, sys: System) -> int:
        return self.concurrency or sys.S


SYNCHRONOUS = Schedule()
