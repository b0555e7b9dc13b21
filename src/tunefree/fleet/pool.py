"""The pool fleet: persistent worker processes, one thread each; the same bits as the serial fleet.

Processes and not threads: Python's lock would make small models wait for each other. Workers are
started as commands of their own, so a user's script needs no `if __name__ == "__main__"`. The data
set and all vectors lie in shared memory; only job descriptions cross the pipes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import cast

from tunefree.core import Algorithm, Client, Oracle, Vec
from tunefree.errors import ConfigError, FleetError
from tunefree.fleet.arena import Arena, Parcel
from tunefree.fleet.job import Done, Job, Key
from tunefree.fleet.states import States
from tunefree.fleet.work import keep_memory

AT_ONCE = 4  # jobs handed to a worker in one go, at most: each go costs a pipe and a pickle
TRIES = 3  # a job that has ended so many workers is not tried again
PATIENCE = 10  # seconds for a worker to end by itself


class Worker:
    """One process with its pipe and its two stretches of memory."""

    def __init__(self, common: Arena, setup: Parcel) -> None:
        self.inbox, self.outbox = Arena.create(), Arena.create()
        self.pipe, theirs = Pipe()
        fds = [theirs.fileno(), common.fd, self.inbox.fd, self.outbox.fd]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tunefree.fleet.worker", *map(str, fds)],
            pass_fds=fds,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        theirs.close()
        self._send(setup)

    def give(self, jobs: Sequence[tuple[Client, Job]]) -> None:
        self._send(self.inbox.pack(jobs))

    def _send(self, parcel: Parcel) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # `answer` will notice
            self.pipe.send(parcel)

    def answer(self) -> list[tuple[Client, Done]] | str | None:
        """What the jobs gave, a sentence if one failed, or nothing if the process has died."""
        try:
            answer = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            return None
        if isinstance(answer, str):
            return answer
        result: list[tuple[Client, Done]] = self.outbox.unpack(answer, copy=True)
        return result

    def close(self) -> None:
        self.pipe.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.inbox.fd)
        os.close(self.outbox.fd)


class Pool:
    """Runs jobs on all workers at once; replaces a worker that dies and does its job again."""

    def __init__(
        self,
        algo: Algorithm,
        theta0: Vec,
        oracle_of: Callable[[Job], Oracle],
        workers: int | None = None,
        states: States | None = None,
    ) -> None:
        if workers is not None and workers < 1:
            raise ConfigError(f"run.workers = {workers} must be at least 1, or 0 for one per core")
        self.states = states or States(algo.client(theta0))
        self._common = Arena.create()
        self._setup = self._common.pack((algo, oracle_of))
        self._workers = [self._hire() for _ in range(workers or cores())]
        keep_memory()

    def _hire(self) -> Worker:
        return Worker(self._common, self._setup)

    def work(self, jobs: Sequence[Job]) -> list[Done]:
        waiting, idle = deque(jobs), list(self._workers)
        busy: dict[Connection, tuple[Worker, list[Job]]] = {}
        done: dict[Key, Done] = {}
        deaths, failure = Counter[Key](), ""
        while busy or (waiting and not failure):
            while waiting and idle and not failure:
                worker, few = idle.pop(), self._next(waiting, deaths)
                busy[worker.pipe] = (worker, few)
                worker.give([(self.states[job.client], job) for job in few])
            for pipe in wait(list(busy)):
                worker, few = busy.pop(cast("Connection", pipe))
                answer = worker.answer()
                if answer is None:
                    worker = self._replaced(worker)
                    waiting.extendleft(reversed(few))
                    deaths.update(job.key for job in few)
                    if deaths[few[0].key] == TRIES:
                        failure = failure or deadly(few[0])
                elif isinstance(answer, str):
                    failure = failure or answer
                else:
                    for state, reply in answer:
                        done[reply.key] = reply
                        self.states.propose(reply.key, state)
                idle.append(worker)
        if failure:
            raise FleetError(failure)
        return [done[job.key] for job in jobs]

    def _next(self, waiting: deque[Job], deaths: Counter[Key]) -> list[Job]:
        """A few jobs for a worker: fewer towards the end, and one alone that a worker died at."""
        count = min(AT_ONCE, -(-len(waiting) // (2 * len(self._workers))))
        few = [waiting.popleft()]
        while len(few) < count and not deaths[few[0].key] and not deaths[waiting[0].key]:
            few.append(waiting.popleft())
        return few

    def _replaced(self, dead: Worker) -> Worker:
        dead.close()
        worker = self._hire()
        self._workers[self._workers.index(dead)] = worker
        return worker

    def accept(self, keys: Sequence[Key]) -> None:
        self.states.accept(keys)

    def close(self) -> None:
        """End all workers; one that is still at a job ends after it."""
        for worker in self._workers:
            worker.close()
        self._workers = []
        os.close(self._common.fd)


def deadly(job: Job) -> str:
    return (
        f"client {job.client} ended {TRIES} worker processes in exchange {job.exchange} of the "
        f"{job.stage} at t = {job.t}, perhaps for lack of memory; use fewer workers or a smaller "
        "model"
    )


def cores() -> int:
    """The processors that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
