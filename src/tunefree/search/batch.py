"""Many configured runs at once on worker processes, each with its run file, in one folder.

Starting the same batch again resumes it: finished runs are read back, unfinished ones continue from
their last checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import subprocess
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, cast

from filelock import FileLock, Timeout

from tunefree.core import text_of
from tunefree.errors import ConfigError, FleetError, RecordError, WireError
from tunefree.fleet.pool import cores
from tunefree.fleet.process import WorkerProcess, lacking
from tunefree.record import Facts, Record, Row, is_locked
from tunefree.run.progress import BatchProgress, sentence
from tunefree.run.run import Run, prepare, resume_command
from tunefree.settings import Settings

Role = Literal["method", "trial", "sweep"]
State = Literal["done", "diverged", "pruned", "failed"]

WORKER = "tunefree.search.run_worker"
TRIES = 2  # a run whose process has died so often is not tried again
SECONDS_TO_END = 10  # for a process whose pipe closed, or whose batch was killed, to exit


class PlannedRun(NamedTuple):
    """A run to start or resume; made by `plan`."""

    label: str  # the method
    settings: Settings
    role: Role
    path: Path
    facts: Mapping[str, object] = {}  # stored in the run file beside the settings
    floors: Mapping[int, float] = {}  # pruned where its accuracy at t is below floors[t]

    @property
    def name(self) -> str:
        return f"{self.label}, seed {self.settings.seed}"


class Result(NamedTuple):
    """The result of a run. A diverged run has one too; a failed one has a reason."""

    run: PlannedRun
    state: State
    history: list[Row]
    reason: str = ""
    facts: Facts = Facts()

    @property
    def scores(self) -> list[Row]:
        """The rows with an evaluation."""
        return [row for row in self.history if "train_loss" in row]

    @property
    def outcome(self) -> str:
        """The result in a few words."""
        if self.state == "done":
            return sentence(self.scores[-1]) if self.scores else "done"
        if self.state == "failed":
            return f"failed: {self.reason}"
        rounds = max(0, len(self.history) - 1)
        return f"{self.state} after {rounds} of {self.run.settings.rounds} rounds"


class Progress(NamedTuple):
    """A row of a run in progress."""

    run: PlannedRun
    row: Row


Event: TypeAlias = Progress | Result | str  # a string is a note to the user
Start: TypeAlias = Callable[[PlannedRun], Run]  # makes the run, or resumes it


def plan(
    folder: Path,
    label: str,
    settings: Settings,
    role: Role = "method",
    facts: Mapping[str, object] = {},
    floors: Mapping[int, float] = {},
    data: str = "",
) -> PlannedRun:
    """A run with these settings, on one thread of one process; they determine its file's name.

    `data` identifies the model and the data where the settings do not name them.
    """
    alone = replace(settings, fleet="serial", workers=0, out="")
    stem = re.sub(r"[^\w.=+-]+", "_", label)[:60]
    same = replace(alone, commit_every=1)  # does not change results
    mark = fingerprint(same, floors, data)
    path = folder / f"{stem}-seed{settings.seed}-{mark}.sqlite"
    alone = replace(alone, out=str(path))
    facts = {**facts, "label": label, "role": role, "plan": mark}
    return PlannedRun(label, alone, role, path, facts, floors)


def folder_of(folder: str | Path, kind: str, *what: object) -> Path:
    """The given folder, or one named after the call, so that the same call finds it again."""
    named = f"{kind.replace(':', '.')}-{mark_of(what)}"  # the user's own method has a colon
    return Path(folder) if folder else Path("runs") / named


def mark_of(what: object) -> str:
    """Eight hex digits that identify a call."""
    return hashlib.sha256(text_of(what).encode()).hexdigest()[:8]


def fingerprint(settings: Settings, floors: Mapping[int, float], data: str = "") -> str:
    """Twelve hex digits that change with every setting."""
    text = json.dumps([settings.asdict(), sorted(floors.items())], sort_keys=True) + data
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def run_all(
    runs: Sequence[PlannedRun], workers: int = 0, start: Start | None = None
) -> list[Result]:
    """Run what is not finished yet, on `workers` processes (0: one per core), with progress.

    If `start` is given, it makes each run in this process, and they run one after the other.
    """
    if not runs:
        return []
    finished: dict[Path, Result] = {}
    rounds = sum(run.settings.rounds for run in runs)
    with (
        BatchProgress(len(runs), rounds) as progress,
        closing(events(runs, workers, start)) as stream,
    ):
        for event in stream:
            show(event, progress)
            if isinstance(event, Result):
                finished[event.run.path] = event
    return [finished[run.path] for run in runs]


def show(event: Event, progress: BatchProgress) -> None:
    """Show what has happened."""
    if isinstance(event, str):
        progress.note(event)
        return
    run = event.run.path, event.run.name, event.run.settings.rounds
    if isinstance(event, Result):
        progress.end(*run, event.outcome)
    else:
        progress.row(*run, event.row)


def run_groups(
    groups: Sequence[Sequence[PlannedRun]], workers: int = 0, start: Start | None = None
) -> list[list[Result]]:
    """Run all groups at once, as `run_all` does; the results come in the same groups."""
    results = iter(run_all([run for group in groups for run in group], workers, start))
    return [[next(results) for _ in group] for group in groups]


def events(
    runs: Sequence[PlannedRun], workers: int = 0, start: Start | None = None
) -> Generator[Event, None, None]:
    """Notes, progress and one result for each run; finished runs are read back."""
    for path, count in Counter(run.path for run in runs).items():
        if count > 1:
            raise ConfigError(f"the run '{path.stem}' is planned {count} times; remove the repeats")
    with ExitStack() as locks:
        for folder in sorted({run.path.parent for run in runs}):
            lock = FileLock(folder / ".lock", thread_local=False)
            locks.callback(lock.release)
            if not acquire(lock, folder, timeout=0):
                yield f"another command is using '{folder}'; waiting for it to end"
                acquire(lock, folder)
        wait_for_leftovers(runs)
        waiting = deque[PlannedRun]()
        for run in runs:
            result = saved_result(run)
            if result is None:
                waiting.append(run)
            else:
                yield result
        if start is None and (why := lacking()):
            yield f"{why}: one run after the other"
            start = from_settings
        if start is None:
            yield from dispatch(waiting, min(workers or cores(), len(waiting)))
        else:
            yield from in_turn(waiting, start)


def acquire(lock: FileLock, folder: Path, timeout: float = -1) -> bool:
    """Lock the folder for this command; a negative timeout waits for as long as it takes."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout)
    except Timeout:
        return False
    except OSError as error:
        raise ConfigError(
            f"--out '{folder}' cannot be written ({error.strerror}); choose a folder that you may "
            "write to"
        ) from error
    return True


def wait_for_leftovers(runs: Sequence[PlannedRun]) -> None:
    """Wait for workers of a killed batch to exit, which they do, and to release their runs."""
    deadline = time.monotonic() + SECONDS_TO_END
    while any(is_locked(run.path) for run in runs) and time.monotonic() < deadline:
        time.sleep(0.05)


def saved_result(run: PlannedRun) -> Result | None:
    """The result in the run's file, if the run is finished."""
    if not run.path.exists() or remove_if_empty(run.path):
        return None
    with closing(Record.open(run.path)) as record:
        facts, history = record.facts(), record.history()
    if facts.plan != run.facts["plan"]:
        raise ConfigError(f"'{run.path}' contains another run; choose another folder (--out)")
    state = final_state(facts)
    reason = facts.pruned if state == "pruned" else facts.reason
    return Result(run, state, history, reason, facts) if state else None


def is_finished(run: PlannedRun) -> bool:
    """Whether its file has a result; only reads, as another command may be writing it."""
    try:
        with closing(Record.open(run.path)) as record:
            return final_state(record.facts()) is not None
    except ConfigError:
        return False


def final_state(facts: Facts) -> State | None:
    """How a run ended, or None if it has not."""
    if facts.state in ("done", "diverged"):
        return cast(State, facts.state)
    return "pruned" if facts.pruned else None


def remove_if_empty(path: Path) -> bool:
    """Remove a file whose process was killed before it wrote anything to it."""
    try:
        with closing(sqlite3.connect(path)) as db:
            (tables,) = db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
            if tables and db.execute("SELECT key FROM run").fetchone():
                return False
    except sqlite3.DatabaseError:
        return False  # not a run file; opening it reports that
    path.unlink()
    return True


def new_worker() -> WorkerProcess:
    """A process that does one run after another; it exits when its standard input closes."""
    return WorkerProcess(WORKER, stdin=subprocess.PIPE, env={"OMP_NUM_THREADS": "1"})


def dispatch(waiting: deque[PlannedRun], count: int) -> Iterator[Event]:
    """Give the runs to `count` workers; replace a worker that dies."""
    idle = [new_worker() for _ in range(count)]
    busy = dict[Connection, tuple[WorkerProcess, PlannedRun]]()
    deaths = Counter[Path]()
    try:
        while waiting or busy:
            while waiting and idle:
                worker, run = idle.pop(), waiting.popleft()
                worker.send(run)
                busy[worker.pipe] = worker, run
            for pipe in wait(list(busy)):
                worker, run = busy[cast("Connection", pipe)]
                message = worker.receive()
                if isinstance(message, ConfigError):
                    raise message
                if message is not None:
                    if isinstance(message, Result):
                        idle.append(busy.pop(worker.pipe)[0])
                    yield message
                    continue
                del busy[worker.pipe]
                code = worker.end(SECONDS_TO_END)
                deaths[run.path] += 1
                idle.append(new_worker())
                if deaths[run.path] < TRIES:
                    waiting.append(run)
                else:
                    how = f"its process died {TRIES} times, {describe_exit(code)}"
                    yield failure(run, how)
    finally:
        for worker in (*idle, *(worker for worker, _ in busy.values())):
            worker.end(0)


def in_turn(waiting: Iterable[PlannedRun], start: Start) -> Iterator[Event]:
    """Do the runs in this process, one after the other; warnings are notes."""
    with warnings.catch_warnings(record=True) as caught:
        for run in waiting:
            for event in perform(run, start):
                while caught:
                    yield str(caught.pop(0).message)
                yield event


def perform(run: PlannedRun, start: Start) -> Iterator[Progress | Result]:
    """Do one run to its end, or until it is hopeless: its rows, then its result."""
    try:
        training = start(run)
        with closing(training.record), closing(iter(training)) as rows:
            for row in rows:
                yield Progress(run, row)
                floor = run.floors.get(int(row["t"]), 0.0)
                if row.get("accuracy", floor) < floor:
                    training.record.note(
                        pruned=f"accuracy {row['accuracy']:.4f} at round {row['t'] + 1:.0f} is "
                        f"below {floor:.4f}, the median of the trials run in full"
                    )
                    break
    except WireError:
        pass  # it has diverged; the reason is in the run file
    except (FleetError, RecordError) as error:
        yield failure(run, str(error))
        return
    yield cast(Result, saved_result(run))


def from_settings(run: PlannedRun) -> Run:
    """A new run, or an interrupted one resumed from its last checkpoint."""
    if run.path.exists():
        return resume_command(run.path, run.settings.fleet)
    return prepare(run.settings, run.facts)


def failure(run: PlannedRun, reason: str) -> Result:
    """The result of a run that failed, with what it did before."""
    if not run.path.exists() or remove_if_empty(run.path):
        return Result(run, "failed", [], reason)
    with closing(Record.open(run.path)) as record:
        return Result(run, "failed", record.history(), reason, record.facts())


def describe_exit(code: int) -> str:
    """How a process ended, in words.

    >>> describe_exit(-9), describe_exit(1)
    ('last by signal 9, perhaps out of memory', 'last with exit code 1')
    """
    if code < 0:
        return f"last by signal {-code}, perhaps out of memory"
    return f"last with exit code {code}"
