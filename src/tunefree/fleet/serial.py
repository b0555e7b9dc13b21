"""The serial fleet: one process, one thread, one client after the other; the reference for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tunefree.core import Algorithm, Client, Oracle, Vec
from tunefree.fleet.states import States
from tunefree.fleet.work import do, keep_memory
from tunefree.models.threads import one_thread
from tunefree.schedule.trip import Done, Job


class Serial:
    """Runs jobs in order."""

    def __init__(self, algo: Algorithm, theta0: Vec, oracle_of: Callable[[Job], Oracle]) -> None:
        self._algo, self._oracle_of = algo, oracle_of
        self._states = States(algo, theta0)
        keep_memory()

    def state(self, client: int) -> Client:
        """The client's last accepted state."""
        return self._states[client]

    def work(self, jobs: Sequence[Job]) -> list[Done]:
        with one_thread():
            return [self._do(job) for job in jobs]

    def _do(self, job: Job) -> Done:
        state, done = do(self._algo, self._oracle_of, self._states[job.client], job)
        self._states.propose(job.client, state)
        return done

    def accept(self, clients: Sequence[int]) -> None:
        self._states.accept(clients)

    def close(self) -> None:
        """Nothing to end."""
