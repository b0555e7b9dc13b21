"""The workers of a node: one process per run, connected by a pair of sockets."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tunefree.node import frames
from tunefree.node.private import Announced, App, Deflated

STOP = 3.0  # seconds for a worker to end by itself


class Process:
    """A worker process, and our end of the sockets."""

    def __init__(self, warm: bool) -> None:
        self.socket, theirs = socket.socketpair()
        command = [sys.executable, "-m", "tunefree.node.worker"]
        command += [str(theirs.fileno()), str(os.getpid())]
        command += ["--warm"] if warm else []
        with theirs:
            self.process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
            )

    def end(self) -> str:
        """Stop it; returns how it ended."""
        self.socket.close()
        try:
            code = self.process.wait(STOP)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


class Worker:
    """A process that works for one run, and the message that it works on."""

    def __init__(self, process: Process, run: int, words: Mapping[str, Any]) -> None:
        self.process, self.run, self.words = process, run, dict(words)
        self.job: Announced | None = None
        self.jobs = 0  # finished
        self.since = time.monotonic()  # when it was given its job, or became idle

    def give(self, message: Announced, objects: Mapping[str, bytes]) -> None:
        self.job, self.since = message, time.monotonic()
        words = {**self.words, "message": message.id, "objects": list(objects)}
        with suppress(OSError):  # it is dead, which `answer` will notice
            frames.write(self.process.socket, words, list(objects.values()))

    def answer(self) -> Deflated | None:
        """Its reply, or None if the worker has ended."""
        frame = frames.read(self.process.socket)
        self.job, self.since = None, time.monotonic()
        if frame is None:
            return None
        self.jobs += 1
        proto, tree, *parts = frame.parts
        return Deflated(proto, tree, dict(zip(frame.words["objects"], parts, strict=True)))


class WorkerPool:
    """All workers, by run; if `warm`, also a spare one that has loaded torch already."""

    def __init__(self, warm: bool) -> None:
        self._workers: dict[int, Worker] = {}
        self._spare = Process(warm=True) if warm else None

    def of(self, run: int) -> Worker | None:
        return self._workers.get(run)

    def start(self, run: int, node: int, node_config: Mapping[str, Any], app: App) -> Worker:
        process, self._spare = self._spare or Process(warm=False), None
        words = {"run": run, "node": node, "node_config": dict(node_config)}
        self._workers[run] = Worker(process, run, {**words, "app": app._asdict()})
        return self._workers[run]

    def ready(self, seconds: float) -> list[Worker]:
        """The workers that have replied or died; waits for one for at most so many seconds."""
        by_socket = {worker.process.socket: worker for worker in self._workers.values()}
        if not by_socket:
            time.sleep(seconds)
            return []
        found, _, _ = select.select(list(by_socket), [], [], seconds)
        return [by_socket[each] for each in found]

    def idle_for(self, seconds: float) -> list[Worker]:
        since = time.monotonic() - seconds
        return [w for w in self._workers.values() if w.job is None and w.since < since]

    def replace(self, worker: Worker) -> str:
        """Replace a worker that has ended, if it ever finished a job; returns how it ended."""
        how = worker.process.end()
        if worker.jobs:
            self._workers[worker.run] = Worker(Process(warm=True), worker.run, worker.words)
        else:
            del self._workers[worker.run]
        return how

    def stop(self, worker: Worker) -> None:
        worker.process.end()
        del self._workers[worker.run]

    def close(self) -> None:
        processes = [worker.process for worker in self._workers.values()]
        for process in [*processes, *([self._spare] if self._spare else [])]:
            process.process.terminate()
            process.end()
        self._workers, self._spare = {}, None
