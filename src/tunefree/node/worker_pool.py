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
from tunefree.node import frames
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
        self.run = 0
        self.words: Mapping[str, Any] = {}  # what it must know about its run
        self.job: Announced | None = None
        self.jobs = 0  # finished
        self.since = time.monotonic()  # when it was given its job, or became idle

    def assign(self, run: int, words: Mapping[str, Any]) -> None:
        self.run, self.words = run, words

    def give(self, message: Announced, objects: Mapping[str, bytes]) -> None:
        self.job, self.since = message, time.monotonic()
        words = {**self.words, "message": message.id, "objects": list(objects)}
        with suppress(OSError):  # it is dead, which `answer` will notice
            frames.write(self.connection, words, list(objects.values()))

    def answer(self) -> Deflated | None:
        """Its reply, or None if the worker has ended."""
        frame = frames.read(self.connection)
        self.job, self.since = None, time.monotonic()
        if frame is None:
            return None
        self.jobs += 1
        proto, tree, *parts = frame.parts
        return Deflated(proto, tree, dict(zip(frame.words["objects"], parts, strict=True)))

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

    def of(self, run: int) -> Worker | None:
        return self._workers.get(run)

    def start(self, run: int, node: int, node_config: Mapping[str, Any], app: App) -> Worker:
        worker, self._spare = self._spare or Worker(warm=False), None
        words = {"run": run, "node": node, "node_config": dict(node_config), "app": app._asdict()}
        worker.assign(run, words)
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
        how = worker.end()
        del self._workers[worker.run]
        if worker.jobs:
            self._workers[worker.run] = again = Worker(warm=True)
            again.assign(worker.run, worker.words)
        return how

    def stop(self, worker: Worker) -> None:
        worker.end()
        del self._workers[worker.run]

    def close(self) -> None:
        for worker in [*self._workers.values(), *([self._spare] if self._spare else [])]:
            worker.terminate()
        self._workers, self._spare = {}, None
