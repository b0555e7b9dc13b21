"""The pool fleet: persistent worker processes, one thread each; the same bits as the serial fleet.

With several GPUs each worker has one of them, in turn, as its device.

Processes, not threads: Python's lock would make small models wait for each other. Workers are
started as separate commands, so a user's script needs no `if __name__ == "__main__"`. The data
set and all vectors are in shared memory; only job descriptions go through the pipes.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from tunefree.core import Algorithm, Client, Oracle, Vec
from tunefree.errors import ConfigError, FleetError
from tunefree.fleet.arena import Arena, Parcel
from tunefree.fleet.distribute import Answer, distribute
from tunefree.fleet.job import Done, Job
from tunefree.fleet.process import WorkerProcess
from tunefree.fleet.states import States
from tunefree.fleet.work import do, keep_memory
from tunefree.models.objective import one_thread

AT_ONCE = 4  # jobs sent to a worker at once, at most: each message costs a pipe and a pickle
CPU = torch.device("cpu")
SEEN = "CUDA_VISIBLE_DEVICES"
SECONDS_TO_END = 10  # that a worker has to exit by itself


class PoolWorker:
    """One process with its two areas of shared memory."""

    def __init__(self, common: Arena, setup: Parcel, gpu: Mapping[str, str]) -> None:
        self.inbox, self.outbox = Arena.create(), Arena.create()
        fds = [common.fd, self.inbox.fd, self.outbox.fd]
        self.process = WorkerProcess("tunefree.fleet.pool", fds, env=gpu)
        self.process.send(setup)

    def give(self, jobs: Sequence[tuple[Client, Job]]) -> Connection:
        self.process.send(self.inbox.pack(jobs))
        return self.process.pipe

    def answer(self) -> Answer:
        answer: str | Parcel | None = self.process.receive()
        if not isinstance(answer, Parcel):
            return answer
        result: list[tuple[Client, Done]] = self.outbox.unpack(answer, copy=True)
        return result

    def close(self) -> None:
        self.process.end(SECONDS_TO_END)
        os.close(self.inbox.fd)
        os.close(self.outbox.fd)


class Pool:
    """Runs jobs on all workers at once; replaces a worker that dies and runs its job again."""

    def __init__(
        self,
        algo: Algorithm,
        theta0: Vec,
        oracle_of: Callable[[Job], Oracle],
        workers: int | None = None,
        states: States | None = None,
    ) -> None:
        if workers is not None and workers < 1:
            raise ConfigError(
                "must be at least 1, or 0 for one per core", setting="workers", value=workers
            )
        self.states = states or States(algo.client(theta0))
        self._names: Sequence[str] = getattr(oracle_of, "names", ())
        self._common = Arena.create()
        try:
            self._setup = self._common.pack((algo, oracle_of))
        except Exception as error:  # anything that a user's object raises when pickled
            os.close(self._common.fd)
            raise ConfigError(
                "cannot send model, data and algorithm to its workers "
                f"({str(error).splitlines()[0]})",
                "open files in __getitem__, or use 'serial'",
                setting="fleet",
                value="pool",
            ) from error
        self._device = getattr(getattr(oracle_of, "objective", None), "device", CPU)
        count = cores() if self._device == CPU else torch.cuda.device_count()
        self._workers = [self._start_worker(i) for i in range(workers or count)]
        keep_memory()

    def _start_worker(self, i: int) -> PoolWorker:
        return PoolWorker(self._common, self._setup, gpu_of(i, self._device))

    def work(self, jobs: Sequence[Job]) -> list[Done]:
        return distribute(self, jobs, self.states, self._names)

    def all(self) -> list[PoolWorker]:
        return list(self._workers)

    def share(self, jobs: int, idle: int) -> int:
        """A few, and fewer towards the end."""
        return min(AT_ONCE, -(-jobs // (2 * len(self._workers))))

    def give(self, worker: PoolWorker, jobs: Sequence[tuple[Client, Job]]) -> Connection:
        return worker.give(jobs)

    def wait(self, handles: Sequence[Connection]) -> list[Any]:
        return wait(handles)

    def answer(self, worker: PoolWorker, handle: Connection) -> Answer:
        return worker.answer()

    def replace(self, dead: PoolWorker) -> PoolWorker:
        dead.close()
        i = self._workers.index(dead)
        self._workers[i] = worker = self._start_worker(i)
        return worker

    def close(self) -> None:
        """Stop all workers; one that is in the middle of a job finishes it first."""
        for worker in self._workers:
            worker.close()
        self._workers = []
        os.close(self._common.fd)


def gpu_of(worker: int, device: torch.device) -> dict[str, str]:
    """What the process of worker i is told: GPU i mod their number is the only one, its "cuda".

    >>> gpu_of(0, CPU)
    {}
    """
    if device.type != "cuda":
        return {}
    given = os.environ.get(SEEN) or ",".join(map(str, range(torch.cuda.device_count())))
    gpus = given.split(",")
    return {SEEN: gpus[worker % len(gpus)]}


def cores() -> int:
    """The processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def serve(pipe: Connection, common: Arena, inbox: Arena, outbox: Arena) -> None:
    """Reply to every batch of jobs with a parcel, or with an error message."""
    algo, oracle_of = common.unpack(pipe.recv(), copy=False)
    while True:
        jobs = inbox.unpack(pipe.recv(), copy=False)
        try:
            with one_thread():
                answer = outbox.pack([do(algo, oracle_of, state, job) for state, job in jobs])
        except FleetError as error:
            pipe.send(str(error))
        else:
            pipe.send(answer)


def main() -> None:
    """A worker process: does jobs until its pool is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the pool decides when to stop
    torch.set_num_threads(1)
    keep_memory()
    pipe, *arenas = (int(fd) for fd in sys.argv[1:])
    try:
        serve(Connection(pipe), *(Arena(fd) for fd in arenas))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


if __name__ == "__main__":
    main()
