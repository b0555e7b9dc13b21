"""The ray fleet: jobs on the actors of a Ray cluster, for simulations that outgrow one machine.

The same function does the jobs, so the bits are the serial fleet's. Ray starts an actor that died
again and does its job again. RAY_ADDRESS names a cluster; without it one is started here and ended.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import ray

from tunefree.core import Algorithm, Client, Oracle, Vec
from tunefree.errors import FleetError
from tunefree.fleet.job import Done, Job, Key
from tunefree.fleet.pool import cores
from tunefree.fleet.states import States
from tunefree.fleet.work import do, keep_memory
from tunefree.models.threads import one_thread

TRIES = 3  # times that a job is done again after its actor died


class Worker:
    """Lives in a process of the cluster; algorithm and data are sent there once."""

    def __init__(self, algo: Algorithm, oracle_of: Callable[[Job], Oracle]) -> None:
        self._algo, self._oracle_of = algo, oracle_of
        keep_memory()

    def do(self, state: Client, job: Job) -> tuple[Client, Done] | str:
        """What the job gave, or the sentence that says why it failed."""
        try:
            with one_thread():
                return do(self._algo, self._oracle_of, state, job)
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
        self._started = not ray.is_initialized()
        if self._started:
            start(workers)
        cluster: Any = ray
        count = workers or int(cluster.cluster_resources().get("CPU", 1))
        actor: Any = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=TRIES)(Worker)
        setup = ray.put(oracle_of)
        self._actors = [actor.remote(algo, setup) for _ in range(count)]

    def work(self, jobs: Sequence[Job]) -> list[Done]:
        waiting, idle = list(reversed(list(enumerate(jobs)))), list(self._actors)
        busy: dict[Any, tuple[Any, int, Job]] = {}
        done: dict[int, Done] = {}
        failure = ""
        while busy or (waiting and not failure):
            while waiting and idle and not failure:
                actor, (place, job) = idle.pop(), waiting.pop()
                busy[actor.do.remote(self.states[job.client], job)] = (actor, place, job)
            (ready,), _ = ray.wait(list(busy), num_returns=1)
            actor, place, job = busy.pop(ready)
            answer = result_of(ready, job)
            if isinstance(answer, str):
                failure = failure or answer
            else:
                state, done[place] = answer
                self.states.propose(job.key, state)
            idle.append(actor)
        if failure:
            raise FleetError(failure)
        return [done[place] for place in range(len(jobs))]

    def accept(self, keys: Sequence[Key]) -> None:
        self.states.accept(keys)

    def close(self) -> None:
        """Give the actors back, and end the cluster if it was started here."""
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


def result_of(ready: Any, job: Job) -> Any:
    try:
        return ray.get(ready)
    except ray.exceptions.RayActorError:
        return (
            f"client {job.client} ended its Ray actor {TRIES + 1} times in exchange "
            f"{job.exchange} of the {job.stage} at t = {job.t}, perhaps for lack of memory; use "
            "fewer workers or a smaller model"
        )
