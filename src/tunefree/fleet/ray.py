"""The ray fleet: jobs on the actors of a Ray cluster, for simulations too large for one machine.

The same function does the jobs, so results are bit-identical to the serial fleet's. An actor that
died is replaced and its jobs are run again. RAY_ADDRESS names a cluster; without it, one is started
here and stopped at the end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import ray

from tunefree.core import Algorithm, Client, Oracle, Vec
from tunefree.errors import FleetError
from tunefree.fleet.distribute import Answer, distribute
from tunefree.fleet.job import Done, Job
from tunefree.fleet.pool import cores
from tunefree.fleet.states import States
from tunefree.fleet.work import do, keep_memory
from tunefree.models.objective import one_thread


class Actor:
    """Runs in a process of the cluster; algorithm and data are sent there once."""

    def __init__(self, algo: Algorithm, oracle_of: Callable[[Job], Oracle]) -> None:
        self._algo, self._oracle_of = algo, oracle_of
        keep_memory()

    def do(self, jobs: Sequence[tuple[Client, Job]]) -> Answer:
        """The results of the jobs, or the error message of one that failed."""
        try:
            with one_thread():
                return [do(self._algo, self._oracle_of, state, job) for state, job in jobs]
        except FleetError as error:
            return str(error)


class Ray:
    """Runs jobs on all actors at once."""

    def __init__(
        self,
        algo: Algorithm,
        theta0: Vec,
        oracle_of: Callable[[Job], Oracle],
        workers: int | None = None,
        states: States | None = None,
    ) -> None:
        self.states = states or States(algo.client(theta0))
        self._names: Sequence[str] = getattr(oracle_of, "names", ())
        self._started = not ray.is_initialized()
        if self._started:
            start(workers)
        cluster: Any = ray
        count = workers or int(cluster.cluster_resources().get("CPU", 1))
        self._algo, self._setup = algo, ray.put(oracle_of)
        self._actors = [self._start_worker() for _ in range(count)]

    def _start_worker(self) -> Any:
        actor: Any = ray.remote(num_cpus=1)(Actor)
        return actor.remote(self._algo, self._setup)

    def work(self, jobs: Sequence[Job]) -> list[Done]:
        return distribute(self, jobs, self.states, self._names)

    def all(self) -> list[Any]:
        return list(self._actors)

    def give(self, worker: Any, jobs: Sequence[tuple[Client, Job]]) -> Any:
        return worker.do.remote(jobs)

    def wait(self, handles: Sequence[Any]) -> list[Any]:
        ready: list[Any] = ray.wait(list(handles), num_returns=1)[0]
        return ready

    def answer(self, worker: Any, handle: Any) -> Answer:
        try:
            answer: Answer = ray.get(handle)
        except ray.exceptions.RayActorError:
            return None
        return answer

    def replace(self, dead: Any) -> Any:
        worker = self._start_worker()
        self._actors[self._actors.index(dead)] = worker
        return worker

    def close(self) -> None:
        """Release the actors, and stop the cluster if it was started here."""
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []
        if self._started:
            ray.shutdown()


def start(workers: int | None) -> None:
    """The cluster that RAY_ADDRESS names, or one on this machine."""
    if os.environ.get("RAY_ADDRESS"):
        ray.init(log_to_driver=False)
    else:
        ray.init(
            address="local",
            num_cpus=workers or cores(),
            include_dashboard=False,
            log_to_driver=False,
            _node_ip_address="127.0.0.1",
        )
