"""The serial fleet: one process, one thread, one client after the other; the reference for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from tunefree.core import Algorithm, Client, FleetError, Oracle, Vec
from tunefree.schedule.trip import Done, Job, exchanges


class Serial:
    """Runs jobs in order; keeps the state of every client that has taken part."""

    def __init__(self, algo: Algorithm, theta0: Vec, oracle: Callable[[Job], Oracle]) -> None:
        self._algo, self._oracle = algo, oracle
        self._first = algo.client(theta0)
        self._pending: dict[int, Client] = {}
        self._states: dict[int, Client] = {}

    def state(self, client: int) -> Client:
        """The client's last accepted state."""
        return self._states.get(client, self._first)

    def work(self, jobs: Sequence[Job]) -> list[Done]:
        with one_thread():
            return [self._do(job) for job in jobs]

    def accept(self, clients: Sequence[int]) -> None:
        for client in clients:
            self._states[client] = self._pending.pop(client)

    def _do(self, job: Job) -> Done:
        exchange = exchanges(self._algo, job.stage)[job.exchange]
        oracle = self._oracle(job)
        try:
            state, up = exchange.work(self.state(job.client), job.down, oracle)
        except Exception as error:
            raise FleetError(
                f"client {job.client} failed in exchange {job.exchange} of the {job.stage} "
                f"at t = {job.t}: {error}"
            ) from error
        self._pending[job.client] = state
        return Done(up, oracle.n, getattr(oracle, "drawn", 0))


@contextmanager
def one_thread() -> Iterator[None]:
    """One intra-op thread, so that sums come out the same on any fleet; own noise streams."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)
