"""The ray fleet: jobs on the actors of a Ray cluster, for simulations too large for one machine.

The same function does the jobs, so results are bit-identical to the serial fleet's. Each node
stores model, data and algorithm once, for all its actors. Every exchange sends an actor the jobs
that it does, and each node the download. Jobs of an actor that died, or of a lost node, are run
again by others; a new actor joins when it has a place. RAY_ADDRESS names a cluster; without it,
one is started here and stopped at the end.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import ray
import torch
from numpy.typing import NDArray

from tunefree.core import Algorithm, Client, Oracle, Vec
from tunefree.errors import FleetError
from tunefree.fleet.arena import ALIGNMENT, Arena, Parcel
from tunefree.fleet.distribute import Answer, distribute
from tunefree.fleet.job import Done, Job
from tunefree.fleet.pool import cores
from tunefree.fleet.states import States
from tunefree.fleet.work import do, keep_memory
from tunefree.models.objective import one_thread

Bytes: TypeAlias = NDArray[np.uint8]

AT_ONCE = 2**26  # bytes of vectors sent to an actor at once, about
START_SECONDS = 30.0  # in which all actors start that have a place
NODE_SECONDS = 600.0  # in which a cluster without any place gets a new node
SILENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


class Packed(Arena):
    """The memory is one array, which Ray copies to other nodes and shares within each."""

    def __init__(self, array: Bytes) -> None:
        self.array = array
        with warnings.catch_warnings():  # what is shared cannot be written to
            warnings.simplefilter("ignore", UserWarning)
            memory = torch.from_numpy(array)
        self._bytes = memory.clone() if memory.data_ptr() % ALIGNMENT else memory

    def _grow(self, size: int) -> None:
        self.array = np.empty(size, np.uint8)
        self._bytes = torch.from_numpy(self.array)


def pack(value: Any) -> tuple[Parcel, Bytes]:
    memory = Packed(np.empty(0, np.uint8))
    return memory.pack(value), memory.array


def unpack(sent: tuple[Parcel, Bytes], copy: bool = False) -> Any:
    parcel, array = sent
    return Packed(array).unpack(parcel, copy)


class Actor:
    """Runs in a process of the cluster."""

    def __init__(self, setup: tuple[Parcel, Bytes]) -> None:
        self._algo, self._oracle_of = unpack(setup)
        keep_memory()

    def ready(self) -> None: ...

    def do(self, sent: tuple[Parcel, Bytes], *downs: tuple[Parcel, Bytes]) -> Any:
        """The results of the jobs, or the error message of one that failed."""
        messages = [unpack(down) for down in downs]
        try:
            with one_thread():
                return pack(
                    [
                        do(self._algo, self._oracle_of, state, job._replace(down=messages[k]))
                        for state, job, k in unpack(sent)
                    ]
                )
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
        self._most = max(1, AT_ONCE // theta0.nbytes)
        self._setup = ray.put(pack((algo, oracle_of)))
        self._downs: dict[int, Any] = {}
        self._ready: list[Any] = []
        self._starting: dict[Any, Any] = {}
        for _ in range(workers or places()):
            self._start_worker()

    def _start_worker(self) -> None:
        """An actor as soon as there is a place for it."""
        cluster: Any = ray
        actor = cluster.remote(num_cpus=1)(Actor).remote(self._setup)
        self._starting[actor.ready.remote()] = actor

    def work(self, jobs: Sequence[Job]) -> list[Done]:
        self._downs.clear()
        return distribute(self, jobs, self.states, self._names)

    def all(self) -> list[Any]:
        """The actors that have started; if there is none yet, wait for them."""
        started = self._begun(0)
        if not self._ready and not started:
            count = max(1, min(len(self._starting), places()))
            started = self._begun(START_SECONDS, count) or self._begun(NODE_SECONDS)
        for handle in started:
            actor = self._starting.pop(handle)
            try:
                ray.get(handle)
            except ray.exceptions.RayActorError as error:
                raise FleetError(
                    f"a worker on the cluster could not start: {str(error).strip()} (every node "
                    "needs the same versions of tunefree, torch and your own packages)"
                ) from error
            self._ready.append(actor)
        if not self._ready:
            raise FleetError(f"the cluster had no free CPU for {NODE_SECONDS:.0f} seconds")
        return list(self._ready)

    def _begun(self, seconds: float, count: int = 1) -> list[Any]:
        handles = list(self._starting)
        return ray.wait(handles, num_returns=count, timeout=seconds)[0] if handles else []

    def share(self, jobs: int, idle: int) -> int:
        """An equal part, within bounds of memory: each message costs as much as short jobs."""
        return min(self._most, -(-jobs // idle))

    def give(self, worker: Any, jobs: Sequence[tuple[Client, Job]]) -> Any:
        downs = {id(job.down): job.down for _, job in jobs}
        for key in downs.keys() - self._downs.keys():
            self._downs[key] = ray.put(pack(downs[key]))
        places = list(downs)
        light = [(state, job._replace(down=()), places.index(id(job.down))) for state, job in jobs]
        return worker.do.remote(pack(light), *(self._downs[key] for key in places))

    def wait(self, handles: Sequence[Any]) -> list[Any]:
        ready: list[Any] = ray.wait(list(handles), num_returns=1)[0]
        return ready

    def answer(self, worker: Any, handle: Any) -> Answer:
        try:
            answer = ray.get(handle)
        except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError):
            return None
        result: Answer = answer if isinstance(answer, str) else unpack(answer, copy=True)
        return result

    def replace(self, dead: Any) -> None:
        ray.kill(dead)  # if it could only not be reached
        self._ready.remove(dead)
        self._start_worker()

    def close(self) -> None:
        """Release the actors, and stop the cluster if it was started here."""
        for actor in [*self._ready, *self._starting.values()]:
            ray.kill(actor)
        self._ready, self._starting = [], {}
        if self._started:
            ray.shutdown()


def places() -> int:
    """The CPUs of the cluster."""
    cluster: Any = ray
    return int(cluster.cluster_resources().get("CPU", 1))


def start(workers: int | None) -> None:
    """The cluster that RAY_ADDRESS names, or one on this machine."""
    for name, value in SILENT.items():
        os.environ.setdefault(name, value)
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
