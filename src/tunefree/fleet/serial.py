"""The serial fleet: one process, one thread, one client after the other; the reference for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tunefree.core import Algorithm, Oracle, Vec
from tunefree.fleet.job import Done, Job
from tunefree.fleet.states import States
from tunefree.fleet.work import do, keep_memory
from tunefree.models.objective import one_thread


class Serial:
    """Runs jobs in order."""

    def __init__(
        self,
        algo: Algorithm,
        theta0: Vec,
        oracle_of: Callable[[Job], Oracle],
        states: States | None = None,
    ) -> None:
        self._algo, self._oracle_of = algo, oracle_of
        self.states = states or States(algo.client(theta0))
        keep_memory()

    def work(self, jobs: Sequence[Job]) -> list[Done]:
        with one_thread():
            return [self._do(job) for job in jobs]

    def _do(self, job: Job) -> Done:
        state, done = do(self._algo, self._oracle_of, self.states[job.client], job)
        self.states.propose(job.key, state)
        return done

    def close(self) -> None:
        """Nothing to stop."""
