"""A node that stays: it speaks to the SuperLink as Flower's own node does, and keeps one worker for
each run, so that an app is installed and torch, the model and the data are loaded once.

This process never imports torch. What must survive it is in its folder: its lock, its key if it was
given none, and the number that the SuperLink gave it, by which it ends a life that ended without a
word. The server sees by the new one that what it had sent is lost.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from filelock import FileLock, Timeout

from tunefree.errors import ConfigError
from tunefree.flower import private
from tunefree.flower.local.certificates import node_key
from tunefree.flower.pace import Pace
from tunefree.flower.private import (
    Announced,
    Link,
    RefusedError,
    RunOverError,
    StrangerError,
    UnreachableError,
)
from tunefree.flower.says import Says
from tunefree.flower.staff import Staff, Worker

V = TypeVar("V")
AGAIN, LONGEST = 0.5, 15.0  # seconds until a SuperLink that did not answer is tried again
HEARTBEATS = 5.0  # seconds between two
CHECK = 10.0  # seconds that a worker has been idle before its run may be over


class Options(NamedTuple):
    """What a node is started with."""

    superlink: str
    node_config: Mapping[str, Any]
    insecure: bool = False
    root_certificates: Path | None = None
    key: Path | None = None
    warm: bool = False

    @property
    def folder(self) -> Path:
        """Where the node and its clients remember, as the client's half of our app has it."""
        name = str(self.node_config.get("partition-id", "node"))
        return Path(str(self.node_config.get("store", Path("tunefree-clients") / name)))

    @property
    def name(self) -> str:
        place = self.node_config.get("partition-id")
        return "node" if place is None else f"partition {place}"


class ResidentNode:
    """Connects, works, and connects again, until a signal ends it."""

    def __init__(self, options: Options) -> None:
        self._options, self._says = options, Says(options.name)
        self._memory = Memory(options.folder / "node.json", options.superlink)
        key = options.key or options.folder / "node.key"
        if not options.key and not key.exists():
            node_key(key)
        self._link = Link(options.superlink, options.insecure, options.root_certificates, key)
        self._staff = Staff(options.warm)
        self._node = 0
        self._waiting: Announced | None = None  # for its worker, which has another job

    def forever(self) -> None:
        try:
            while True:
                self._node = self._connect()
                with heartbeats(self._link), suppress(StrangerError):
                    self._serve()
                self._says("the SuperLink no longer knows this node; connecting again")
        finally:
            self._staff.close()
            with suppress(RefusedError, UnreachableError):
                if self._node:
                    self._link.deactivate(self._node)
            self._link.close()

    def _connect(self) -> int:
        """The number that the SuperLink gives this node; tried until it lets the node in."""
        wait = AGAIN
        while True:
            try:
                return self._activate()
            except (RefusedError, UnreachableError) as error:
                self._says(f"{why_not(error, self._options)}; trying again")
            time.sleep(wait)
            wait = min(1.5 * wait, LONGEST)

    def _activate(self) -> int:
        if self._options.key is None:
            with suppress(RefusedError):  # it knows the key already, or wants keys that it was told
                self._link.register()
        try:
            node = self._link.activate()
        except RefusedError:
            if not self._memory.node:
                raise
            self._link.deactivate(self._memory.node)  # a life that ended without a word
            node = self._link.activate()
        self._memory.keep(node)
        self._says(f"connected to {self._options.superlink} as node {node}")
        return node

    def _serve(self) -> None:
        pace = Pace()
        while True:
            message = self._waiting or self._patiently(self._link.pull)
            if message is not None and self._give(message):
                pace.news()
                continue
            for worker in self._staff.ready(pace.pause()):
                self._deliver(worker)
                pace.news()
            self._let_go()

    def _give(self, message: Announced) -> bool:
        """Hand a message to its run's worker, unless that has another one."""
        worker = self._staff.of(message.run)
        if worker is not None and worker.job is not None:
            self._waiting = message
            return False
        self._waiting = None
        try:
            if worker is None:
                self._says(f"run {message.run} begins here")
                app = self._patiently(partial(self._link.install, message.run))
                worker = self._staff.hire(message.run, self._node, self._options.node_config, app)
            objects = self._patiently(partial(self._link.fetch, message))
        except StrangerError:
            raise
        except (RefusedError, RunOverError) as error:
            self._says(f"a message of run {message.run} was left: {error}")
            return True
        except Exception as error:  # of the app that was to be installed
            self._says(f"the app of run {message.run} cannot be installed: {error}")
            self._push(message.run, private.failure(message.proto, str(error)), 0.0)
            return True
        worker.begin(message, objects)
        return True

    def _deliver(self, worker: Worker) -> None:
        """Send on what a worker has answered; if it died instead, say so and replace it."""
        job, seconds = worker.job, time.monotonic() - worker.since
        reply = worker.answer()
        if reply is None:
            how = self._staff.bury(worker)
            self._says(f"the worker of run {worker.run} ended ({how}); another takes its place")
            reply = job and private.failure(job.proto, f"the client's worker ended ({how})")
        if reply is not None:
            self._push(worker.run, reply, seconds)

    def _push(self, run: int, reply: private.Deflated, seconds: float) -> None:
        try:
            self._patiently(partial(self._link.push, run, reply, seconds))
        except StrangerError:
            raise
        except (RefusedError, RunOverError) as error:
            self._says(f"a reply to run {run} was not wanted: {error}")

    def _let_go(self) -> None:
        """End the workers of runs that are over."""
        for worker in self._staff.idle_for(CHECK):
            if self._patiently(partial(self._link.running, worker.run)):
                worker.since = time.monotonic()
            else:
                self._says(f"run {worker.run} is over here")
                self._staff.dismiss(worker)

    def _patiently(self, request: Callable[[], V]) -> V:
        """Ask until the SuperLink answers; what it was asked for may be done twice."""
        wait, began = AGAIN, time.monotonic()
        while True:
            try:
                found = request()
            except UnreachableError as error:
                self._says(f"{why_not(error, self._options)}; trying again")
                time.sleep(wait)
                wait = min(1.5 * wait, LONGEST)
            else:
                if wait > AGAIN:
                    away = time.monotonic() - began
                    self._says(f"the SuperLink answers again, after {away:.0f} s")
                return found


class Memory:
    """What the next life of a node must know: the number that its SuperLink gave it."""

    def __init__(self, path: Path, superlink: str) -> None:
        self._path, self._superlink, self.node = path, superlink, 0
        with suppress(OSError, ValueError):
            kept = json.loads(path.read_text())
            self.node = kept["node"] if kept["superlink"] == superlink else 0

    def keep(self, node: int) -> None:
        self.node, new = node, self._path.with_suffix(".new")
        with suppress(OSError):  # a full disk: the work itself will say so
            new.write_text(json.dumps({"superlink": self._superlink, "node": node}))
            new.replace(self._path)


def why_not(error: Exception, options: Options) -> str:
    """What keeps a node out, and what an operator does about it."""
    where, told = f"the SuperLink at {options.superlink}", str(error).lower()
    if isinstance(error, UnreachableError):
        if "certificate" in told:
            return (
                f"{where} shows a certificate that is not trusted ({error}); renew it there, or "
                "give the authority that signed it with --root-certificates"
            )
        if "ssl" in told or "disconnected" in told:
            return f"{where} breaks off ({error}); does one side use TLS and the other not?"
        return f"{where} does not answer ({error})"
    if options.key is None:
        return (
            f"{where} does not let this node in ({error}); if it wants node keys, give one with "
            "--key and have its public half registered there"
        )
    return (
        f"{where} does not let this node in ({error}): either its key is not registered there "
        f"(flwr supernode register {options.key}.pub), or a node with it is still counted as "
        "connected, for half a minute after it was killed"
    )


@contextmanager
def heartbeats(link: Link) -> Iterator[None]:
    """Tell the SuperLink, in a thread, that this node is there."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(HEARTBEATS):
            with suppress(RefusedError, UnreachableError):  # the node's own requests tell it too
                link.heartbeat()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(HEARTBEATS)


def serve(options: Options) -> None:
    """Run a node until SIGTERM or Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options.folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(options.folder / "node.lock")
    try:
        with lock.acquire(timeout=0):
            ResidentNode(options).forever()
    except Timeout:
        raise ConfigError(
            f"store = '{options.folder}' belongs to a node that is running; end that one, or give "
            "this one a folder of its own: --node-config 'store=\"FOLDER\"'"
        ) from None
    except KeyboardInterrupt:
        Says(options.name)("stopped")
