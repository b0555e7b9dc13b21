"""Many configured runs at once: a process each at a time, a run file each, all in one folder.

Giving the same batch again plays only what is not finished, so an interrupted batch goes on.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, TypeAlias, cast

from tunefree.config import Config
from tunefree.errors import ConfigError
from tunefree.fleet.pool import cores
from tunefree.record import Record, Row

Role = Literal["arm", "trial", "sweep"]
State = Literal["done", "diverged", "pruned", "failed"]

WORKER = "tunefree.experiments.worker"
TRIES = 2  # a run that has ended so many processes is not tried again
ENDED = ("done", "diverged")
PATIENCE = 10  # seconds for a process that hung up to end by itself


class Planned(NamedTuple):
    """A run to be played; made by `plan`."""

    label: str  # the arm
    config: Config
    role: Role
    path: Path
    facts: Mapping[str, object] = {}  # kept in the run file beside the settings
    floors: Mapping[int, float] = {}  # pruned where its accuracy at t is below floors[t]

    @property
    def name(self) -> str:
        return f"{self.label}, seed {self.config.run.seed}"

    @property
    def job(self) -> dict[str, Any]:
        """What a worker must know."""
        floors = list(self.floors.items())
        return {"config": self.config.asdict(), "facts": dict(self.facts), "floors": floors}


class Result(NamedTuple):
    """What came of a run. A run that diverged is a result too; one that failed says why."""

    planned: Planned
    state: State
    history: list[Row]
    reason: str = ""

    @property
    def scores(self) -> list[Row]:
        """The rows in which an evaluation was due."""
        return [row for row in self.history if "train_loss" in row]


class Heard(NamedTuple):
    """What a running run tells of itself."""

    planned: Planned
    row: Row


Event: TypeAlias = Heard | Result | str  # a string is a note to the user


def plan(
    folder: Path,
    label: str,
    config: Config,
    role: Role = "arm",
    facts: Mapping[str, object] = {},
    floors: Mapping[int, float] = {},
) -> Planned:
    """The run of these settings, in a file whose name they decide, on one thread of one process."""
    alone = replace(config, run=replace(config.run, fleet="serial", workers=0, out=""))
    stem = re.sub(r"[^\w.=+-]+", "_", label)[:60]
    mark = fingerprint(alone, floors)
    path = folder / f"{stem}-seed{config.run.seed}-{mark}.sqlite"
    alone = replace(alone, run=replace(alone.run, out=str(path)))
    facts = {**facts, "arm": label, "role": role, "settings": mark}
    return Planned(label, alone, role, path, facts, floors)


def fingerprint(config: Config, floors: Mapping[int, float]) -> str:
    """Twelve letters that differ wherever a setting differs."""
    text = json.dumps([config.asdict(), sorted(floors.items())], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def play(runs: Sequence[Planned], workers: int = 0) -> list[Result]:
    """Play what is not finished yet, on so many processes (0: one per core), and show progress."""
    from tunefree.experiments.watch import watched

    finished = {result.planned.path: result for result in watched(runs, events(runs, workers))}
    return [finished[run.path] for run in runs]


def events(runs: Sequence[Planned], workers: int = 0) -> Iterator[Event]:
    """All that is heard of the runs, each ending in its result; finished ones are read back."""
    for path, count in Counter(run.path for run in runs).items():
        if count > 1:
            raise ConfigError(f"the run '{path.stem}' is asked for {count} times; leave one out")
    with ExitStack() as ends:
        locks = []
        for folder in sorted({run.path.parent for run in runs}):
            lock = ends.enter_context(lock_of(folder))
            if not locked(lock, fcntl.LOCK_NB):
                yield f"another command is at work in '{folder}'; this one goes on after it"
                locked(lock)
            locks.append(lock.fileno())
        waiting = deque[Planned]()
        for run in runs:
            result = kept(run)
            if result is None:
                waiting.append(run)
            else:
                yield result
        crew = Crew(min(workers or cores(), len(waiting)), locks)
        ends.callback(crew.end)
        yield from played(waiting, crew)


def lock_of(folder: Path) -> IO[str]:
    """A file that one command at a time may hold, and its workers with it, until all have ended."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / ".lock").open("w")
    except OSError as error:
        raise ConfigError(
            f"--out '{folder}' cannot be written ({error.strerror}); choose a folder that you may "
            "write to"
        ) from error


def locked(file: IO[str], way: int = 0) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | way)
    except BlockingIOError:
        return False
    return True


def kept(run: Planned) -> Result | None:
    """The result that the run's file holds, if it is finished."""
    if not run.path.exists() or removed_if_empty(run.path):
        return None
    with closing(Record.open(run.path)) as record:
        facts, history = record.facts(), record.history()
    if facts.settings != run.facts["settings"]:
        raise ConfigError(f"'{run.path}' holds another run; choose another folder (--out)")
    if facts.state in ENDED:
        return Result(run, facts.state, history, facts.reason)  # type: ignore[arg-type]
    return Result(run, "pruned", history, facts.pruned) if facts.pruned else None


def is_finished(run: Planned) -> bool:
    """Whether its file holds a result; looks only, for another command may be at work on it."""
    try:
        with closing(Record.open(run.path)) as record:
            facts = record.facts()
    except ConfigError:
        return False
    return facts.state in ENDED or bool(facts.pruned)


def removed_if_empty(path: Path) -> bool:
    """Make way where a process was ended while it made the file, before it said anything in it."""
    try:
        with closing(sqlite3.connect(path)) as db:
            (tables,) = db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
            if tables and db.execute("SELECT key FROM run").fetchone():
                return False
    except sqlite3.DatabaseError:
        return False  # no run file at all; whoever opens it says so
    path.unlink()
    return True


class Worker:
    """A process that plays one run after another; it ends when its standard input does."""

    def __init__(self, locks: Sequence[int]) -> None:
        self.pipe, theirs = Pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-m", WORKER, str(theirs.fileno())],
            pass_fds=[theirs.fileno(), *locks],
            stdin=subprocess.PIPE,
            env=os.environ
            | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"},
        )
        theirs.close()

    def give(self, run: Planned) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # `hear` will notice
            self.pipe.send_bytes(json.dumps(run.job).encode())

    def hear(self) -> dict[str, Any] | None:
        """The next message, or nothing if the process has died."""
        try:
            return cast("dict[str, Any]", json.loads(self.pipe.recv_bytes()))
        except (EOFError, ConnectionResetError):
            return None

    def end(self, patience: float = 0) -> int:
        """End the process, if it does not so by itself, whatever it is doing; its exit code."""
        self.pipe.close()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.terminate()
        code = self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        return code


class Crew:
    """The workers of a batch."""

    def __init__(self, size: int, locks: Sequence[int]) -> None:
        self._locks = locks
        self.workers = [Worker(locks) for _ in range(size)]

    def replaced(self, dead: Worker) -> Worker:
        fresh = Worker(self._locks)
        self.workers[self.workers.index(dead)] = fresh
        return fresh

    def end(self) -> None:
        for worker in self.workers:
            worker.end()


def played(waiting: deque[Planned], crew: Crew) -> Iterator[Event]:
    """Deal the runs out to the workers; replace a worker that dies."""
    idle, busy = list(crew.workers), dict[Connection, tuple[Worker, Planned]]()
    deaths = Counter[Path]()
    while waiting or busy:
        while waiting and idle:
            worker, run = idle.pop(), waiting.popleft()
            worker.give(run)
            busy[worker.pipe] = worker, run
        for pipe in wait(list(busy)):
            worker, run = busy[cast("Connection", pipe)]
            message = worker.hear()
            if message is None:
                del busy[worker.pipe]
                code = worker.end(PATIENCE)
                deaths[run.path] += 1
                idle.append(crew.replaced(worker))
                if deaths[run.path] < TRIES:
                    waiting.append(run)
                else:
                    yield failed(run, f"its process ended {TRIES} times, {ending(code)}")
            elif "note" in message:
                yield str(message["note"])
            elif "row" in message:
                yield Heard(run, message["row"])
            else:
                del busy[worker.pipe]
                idle.append(worker)
                if message["end"] == "refused":
                    raise ConfigError(message["reason"])
                if message["end"] == "failed":
                    yield failed(run, message["reason"])
                else:
                    yield cast(Result, kept(run))


def failed(run: Planned, reason: str) -> Result:
    if not run.path.exists() or removed_if_empty(run.path):
        return Result(run, "failed", [], reason)
    with closing(Record.open(run.path)) as record:
        return Result(run, "failed", record.history(), reason)


def ending(code: int) -> str:
    """How a process ended, in words.

    >>> ending(-9), ending(1)
    ('last by signal 9, perhaps for lack of memory', 'last with exit code 1')
    """
    if code < 0:
        return f"last by signal {-code}, perhaps for lack of memory"
    return f"last with exit code {code}"
