"""The workers of a node: one process per run, connected by a pair of sockets."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any

from tunefree.flower.log import exit_text
from tunefree.node import messages
from tunefree.node.apps import App
from tunefree.node.messages import Announced, Deflated

STOP = 3.0  # seconds for a worker to end by itself


class Worker:
    """A process that works for one run, and the message that it works on."""

    def __init__(self, warm: bool) -> None:
        """A warm one loads torch at once, before it has a run."""
        self.connection, theirs = multiprocessing.Pipe()
        command = [sys.executable, "-m", "tunefree.node.worker"]
        command += [str(theirs.fileno()), str(os.getpid())]
        command += ["--warm"] if warm else []
        with theirs:
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
            )
        self.words: Mapping[str, Any] = {"run": 0}  # what it must know about its run
        self.job: Announced | None = None
        self.jobs = 0  # finished
        self.since = time.monotonic()  # when it was given its job, or became idle

    @property
    def run(self) -> int:
        return int(self.words["run"])

    def give(self, message: Announced, objects: Mapping[str, bytes]) -> None:
        self.job, self.since = message, time.monotonic()
        with suppress(OSError):  # it is dead, which `answer` will notice
            messages.write(self.connection, {**self.words, "message": message.id}, objects)

    def answer(self) -> Deflated | None:
        """Its reply, or None if the worker has ended."""
        frame = messages.read(self.connection)
        self.job, self.since = None, time.monotonic()
        if frame is None:
            return None
        self.jobs += 1
        _, objects = frame
        return Deflated(objects.pop("proto"), objects.pop("tree"), objects)

    def end(self) -> str:
        """Stop it; returns how it ended."""
        self.connection.close()
        try:
            code = self._process.wait(STOP)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return exit_text(code)

    def terminate(self) -> None:
        self._process.terminate()
        self.end()


class WorkerPool:
    """All workers, by run; if `warm`, also a spare one that has loaded torch already."""

    def __init__(self, warm: bool) -> None:
        self._workers: dict[int, Worker] = {}
        self._spare = Worker(warm=True) if warm else None

    @property
    def runs(self) -> int:
        return len(self._workers)

    def of(self, run: int) -> Worker | None:
        return self._workers.get(run)

    def start(self, run: int, node: int, node_config: Mapping[str, Any], app: App) -> Worker:
        worker, self._spare = self._spare or Worker(warm=False), None
        config, words = dict(node_config), app._asdict()
        worker.words = {"run": run, "node": node, "node_config": config, "app": words}
        self._workers[run] = worker
        return worker

    def ready(self, seconds: float) -> list[Worker]:
        """The workers that have replied or died; waits for one for at most so many seconds."""
        by_connection = {worker.connection: worker for worker in self._workers.values()}
        found = wait(list(by_connection), seconds)
        return [worker for each, worker in by_connection.items() if each in found]

    def idle_for(self, seconds: float) -> list[Worker]:
        since = time.monotonic() - seconds
        return [w for w in self._workers.values() if w.job is None and w.since < since]

    def replace(self, worker: Worker) -> str:
        """Replace a worker that has ended, if it ever finished a job; returns how it ended."""
        how = self.stop(worker)
        if worker.jobs:
            self._workers[worker.run] = again = Worker(warm=True)
            again.words = worker.words
        return how

    def stop(self, worker: Worker) -> str:
        del self._workers[worker.run]
        return worker.end()

    def close(self) -> None:
        for worker in [*self._workers.values(), *([self._spare] if self._spare else [])]:
            worker.terminate()
        self._workers, self._spare = {}, None
