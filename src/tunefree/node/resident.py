"""A resident node: it speaks Flower's protocol, and has one worker process per run, so that an app
is installed and torch, the model and the data are loaded only once.

This process never imports torch. What must survive a restart is in its folder: its lock, its key if
it was given none, and the id that the SuperLink gave it, with which it ends its old session after a
crash. The server sees from the new session that the jobs it had sent are lost.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from filelock import FileLock, Timeout

from tunefree.errors import ConfigError
from tunefree.flower.log import Log
from tunefree.flower.metrics import NODE, publish
from tunefree.flower.pace import Pace
from tunefree.node.connection import (
    RefusedError,
    RunOverError,
    StrangerError,
    UnreachableError,
    unreachable,
)
from tunefree.node.keys import node_key
from tunefree.node.link import Link
from tunefree.node.messages import Announced, Deflated, failure
from tunefree.node.worker_pool import Worker, WorkerPool

V = TypeVar("V")
RETRY, LONGEST = 0.5, 15.0  # seconds before the next try
HEARTBEATS = 5.0  # seconds between two heartbeats
CHECK = 10.0  # seconds that a worker is idle before we ask whether its run has ended


class Options(NamedTuple):
    """What a node is started with."""

    superlink: str
    node_config: Mapping[str, Any]
    insecure: bool = False
    root_certificates: Path | None = None
    key: Path | None = None
    warm: bool = False
    approve: Sequence[str] = ()

    @property
    def folder(self) -> Path:
        """The folder of the node's and the clients' states, the same as `state_path` uses."""
        name = str(self.node_config.get("partition-id", "node"))
        return Path(str(self.node_config.get("store", Path("tunefree-clients") / name)))

    @property
    def name(self) -> str:
        place = self.node_config.get("partition-id")
        return "node" if place is None else f"partition {place}"


class ResidentNode:
    """Connects, works, and reconnects, until a signal ends it."""

    def __init__(self, options: Options) -> None:
        self._options, self._log = options, Log(options.name)
        self._session = Session(options.folder / "node.json", options.superlink)
        key = options.key or options.folder / "node.key"
        with usable(options.folder):
            if not options.key and not key.exists():
                node_key(key)
        self._link = Link(options.superlink, options.insecure, options.root_certificates, key)
        self._pool = WorkerPool(options.warm)
        self._node = 0
        self.numbers = dict.fromkeys(NODE, 0.0)
        self._pending: Announced | None = None  # a message whose worker is busy

    def forever(self) -> None:
        try:
            while True:
                self._node = self._connect()
                self.numbers["node_connected"] = 1
                with heartbeats(self._link), suppress(StrangerError):
                    self._serve()
                self.numbers["node_connected"] = 0
                self._log("the SuperLink no longer knows this node; reconnecting")
        finally:
            self._pool.close()
            with suppress(RefusedError, UnreachableError):
                if self._node:
                    self._link.deactivate(self._node)
            self._link.close()

    def _connect(self) -> int:
        """Retry until the SuperLink admits this node; returns the id that it gives the node."""
        wait = waits()
        while True:
            try:
                return self._activate()
            except (RefusedError, UnreachableError) as error:
                self._log(f"{why_not(error, self._options, self._node > 0)}; trying again")
            time.sleep(next(wait))

    def _activate(self) -> int:
        if self._options.key is None:
            with suppress(RefusedError):  # it knows the key already, or requires registered keys
                self._link.register()
        try:
            node = self._link.activate()
        except RefusedError:
            if not self._session.node:
                raise
            self._link.deactivate(self._session.node)  # of a session that crashed
            node = self._link.activate()
        self._session.save(node)
        self._log(f"connected to {self._options.superlink} as node {node}")
        return node

    def _serve(self) -> None:
        pace = Pace()
        while True:
            message = self._pending or self._retry(self._link.pull)
            if message is not None and self._give(message):
                pace.news()
                continue
            for worker in self._pool.ready(pace.pause()):
                self._deliver(worker)
                pace.news()
            self._stop_finished()

    def _give(self, message: Announced) -> bool:
        """Give a message to its run's worker; False if the worker is busy."""
        worker = self._pool.of(message.run)
        if worker is not None and worker.job is not None:
            self._pending = message
            return False
        self._pending = None
        try:
            if worker is None:
                app = self._retry(partial(self._link.install, message.run, self._options.approve))
                self._log(f"run {message.run} started, of the app {app.fab_hash}")
                worker = self._pool.start(message.run, self._node, self._options.node_config, app)
            objects = self._retry(partial(self._link.fetch, message))
        except StrangerError:
            raise
        except (RefusedError, RunOverError) as error:
            self._log(f"a message of run {message.run} was skipped: {error}")
            return True
        except Exception as error:  # while installing the app
            self.numbers["node_failures_total"] += 1
            self._log(f"run {message.run} cannot start: {error}")
            self._push(message.run, failure(message.proto, str(error)), 0.0)
            return True
        worker.give(message, objects)
        return True

    def _deliver(self, worker: Worker) -> None:
        """Send a worker's reply to the server; if the worker died, report that and replace it."""
        job, seconds = worker.job, time.monotonic() - worker.since
        reply = worker.answer()
        self.numbers["node_failures_total" if reply is None else "node_jobs_total"] += 1
        self.numbers["node_job_seconds_total"] += 0 if reply is None else seconds
        if reply is None:
            how = self._pool.replace(worker)
            self._log(f"the worker of run {worker.run} ended ({how}) and is replaced")
            reply = job and failure(job.proto, f"the client's worker ended ({how})")
        if reply is not None:
            self._push(worker.run, reply, seconds)

    def _push(self, run: int, reply: Deflated, seconds: float) -> None:
        try:
            self._retry(partial(self._link.push, run, reply, seconds))
        except StrangerError:
            raise
        except (RefusedError, RunOverError) as error:
            self._log(f"a reply to run {run} was refused: {error}")

    def _stop_finished(self) -> None:
        """Stop the workers of runs that have ended."""
        self.numbers["node_runs"] = self._pool.runs
        for worker in self._pool.idle_for(CHECK):
            if self._retry(partial(self._link.running, worker.run)):
                worker.since = time.monotonic()
            else:
                self._log(f"run {worker.run} has ended")
                self._pool.stop(worker)

    def _retry(self, request: Callable[[], V]) -> V:
        """Repeat a request until the SuperLink answers; it may take effect twice."""
        began, wait, tries = time.monotonic(), waits(), 0
        while True:
            try:
                found = request()
            except UnreachableError as error:
                self.numbers["node_connected"] = 0
                self._log(f"{why_not(error, self._options, True)}; trying again")
                time.sleep(next(wait))
                tries += 1
            else:
                self.numbers["node_connected"] = 1
                if tries:
                    away = time.monotonic() - began
                    self._log(f"the SuperLink answers again, after {away:.0f} s")
                return found


def waits() -> Iterator[float]:
    """Seconds before a SuperLink that did not answer is tried again, without end."""
    wait = RETRY
    while True:
        yield wait
        wait = min(1.5 * wait, LONGEST)


class Session:
    """The id that the SuperLink gave this node, saved for the next start of the node."""

    def __init__(self, path: Path, superlink: str) -> None:
        self._path, self._superlink, self.node = path, superlink, 0
        with suppress(OSError, ValueError, LookupError, TypeError):  # as if there were none
            saved = json.loads(path.read_text())
            self.node = int(saved["node"]) if saved["superlink"] == superlink else 0

    def save(self, node: int) -> None:
        self.node, new = node, self._path.with_suffix(".new")
        with suppress(OSError):  # a full disk: the client's work will report it
            new.write_text(json.dumps({"superlink": self._superlink, "node": node}))
            new.replace(self._path)


def why_not(error: Exception, options: Options, connected: bool = False) -> str:
    """Why a node cannot connect, and what an operator can do about it."""
    where = f"the SuperLink at {options.superlink}"
    if isinstance(error, UnreachableError):
        return unreachable(error, options.superlink, connected)
    if options.key is None:
        return (
            f"{where} refuses this node ({error}); if it requires node keys, give one with --key "
            "and have its public key registered there"
        )
    return (
        f"{where} refuses this node ({error}): either its key is not registered there "
        f"(tunefree flower register --superlink {options.superlink} {options.key}.pub), or a node "
        "with this key still counts as connected, as it does for half a minute after it was killed"
    )


@contextmanager
def heartbeats(link: Link) -> Iterator[None]:
    """Send heartbeats to the SuperLink from a thread."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(HEARTBEATS):
            with suppress(RefusedError, UnreachableError):  # the node's own requests report these
                link.heartbeat()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(HEARTBEATS)


def serve(options: Options, metrics: str | None = None) -> None:
    """Run a node until SIGTERM or Ctrl-C; its numbers are at [HOST:]PORT if that is given."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.umask(0o077)  # keys and states are for their owner only
    lock = FileLock(options.folder / "node.lock")
    with usable(options.folder):
        options.folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    try:
        node = ResidentNode(options)
        if metrics is not None:
            publish(lambda: node.numbers, metrics)
        node.forever()
    except KeyboardInterrupt:
        Log(options.name)("stopped")
    finally:
        lock.release()


@contextmanager
def usable(store: Path) -> Iterator[None]:
    """Turn the lock's and the operating system's errors on a node's folder into one sentence."""
    another = "give this node another folder: --node-config 'store=\"FOLDER\"'"
    try:
        yield
    except Timeout:
        raise ConfigError(
            f"store = '{store}' belongs to a node that is running; stop that node, or {another}"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"store = '{store}' cannot be written ({error.strerror or error}); {another}"
        ) from error
