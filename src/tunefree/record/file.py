"""A run is one SQLite file: settings, every step's scores and traffic, and a checkpoint.

Steps are committed in one transaction each (or a few at once) with the states after them, so a
killed run resumes from its last checkpoint. A separate thread writes them during training; reading
the record waits for it. WAL mode lets others read while a run is being written; one process at a
time may write.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import wraps
from pathlib import Path
from threading import Thread
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from tunefree.errors import ConfigError, TunefreeError
from tunefree.record import store
from tunefree.record.evidence import Evidence, compared, outliers
from tunefree.record.facts import Facts
from tunefree.record.lock import (
    acquire_lock,
    cannot_write,
    is_locked,
    lock_path,
    read_only,
    this_process,
)
from tunefree.record.store import Store, Vectors
from tunefree.record.summary import Line, Row, Rows, Summary

P = ParamSpec("P")
R = TypeVar("R")
VERSION = 2
SERVER, GAUGE, BEST = -1, -2, -3  # owners of vectors: gauge of uploads, best model; clients from 0
QUARANTINE = "quarantine"  # of the gauge: (client, after which step, until which or -1)
LEFT = "left"  # of the gauge: clients that are left out
ACK = "ack"  # of a deployed client: the key of its last accepted reply
PAGE = 16_384  # bytes; large pages for long vectors
LEAST_LOG = 1_000  # pages in the write-ahead log before a checkpoint, SQLite's default
PATIENCE = 5_000  # milliseconds to wait for a reader, Python's default
COMMITS_IN_LOG = 4  # or so many commits, if they are larger: moving each at once costs double
SHARE = 0.05  # of a run's time that commits may take, unless commit_every is given
LAST, ROOM = 10, 2**28  # checkpoints that stay beside the early ones, if so many bytes hold them
MOST_LOG = 2**28 // PAGE  # pages; an opening writes the states of all clients

# The connections of runs that are being written, kept alive: Python 3.13 may close one that is
# collected as garbage together with its run, before the run has written its last steps.
WRITING: set[sqlite3.Connection] = set()

TABLES = """
CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE step (
    t INTEGER PRIMARY KEY,     -- -1 is the opening
    drawn INTEGER NOT NULL,    -- samples drawn by all clients
    seconds REAL NOT NULL,     -- wall time of the step, without evaluation
    time REAL NOT NULL         -- virtual time at its end, if clients' delays are simulated
);
CREATE TABLE reply (
    t INTEGER NOT NULL, client INTEGER NOT NULL,
    tau INTEGER NOT NULL,      -- server steps since its download
    PRIMARY KEY (t, client)
) WITHOUT ROWID;
CREATE TABLE score (
    t INTEGER NOT NULL, name TEXT NOT NULL, value REAL NOT NULL, PRIMARY KEY (t, name)
) WITHOUT ROWID;
CREATE TABLE traffic (
    t INTEGER NOT NULL, exchange INTEGER NOT NULL, direction TEXT NOT NULL,
    messages INTEGER NOT NULL,   -- how many were received
    bits INTEGER NOT NULL,       -- of all of them together
    value_bits INTEGER NOT NULL, -- without the positions of values, as some papers count
    PRIMARY KEY (t, exchange, direction)
) WITHOUT ROWID;
CREATE TABLE absent (        -- clients whose reply was missing or refused, and why
    t INTEGER NOT NULL, exchange INTEGER NOT NULL, client INTEGER NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (t, exchange, client)
) WITHOUT ROWID;
CREATE TABLE held (          -- downloads that clients of a buffered run work on at a checkpoint
    t INTEGER PRIMARY KEY, message BLOB NOT NULL
);
"""
CHECKPOINTS = """
CREATE TABLE IF NOT EXISTS checkpoint (  -- steps that the run can go back to
    t INTEGER PRIMARY KEY, held TEXT NOT NULL  -- a list of the downloads
);
"""
SCHEMA = TABLES + CHECKPOINTS + store.SCHEMA
NOTE = "INSERT OR REPLACE INTO run VALUES (?, ?)"
OF_CLIENTS = "SELECT client, COUNT(*), AVG(tau) FROM reply WHERE t >= 0 GROUP BY client"
NO_LONGER_HELD = """
DELETE FROM held WHERE t NOT IN (SELECT value FROM checkpoint, json_each(checkpoint.held))
"""
REPLIES = "SELECT t, COUNT(*), AVG(tau), MAX(tau) FROM reply GROUP BY t"
TRAFFIC = "SELECT t, direction, SUM(bits), SUM(value_bits) FROM traffic GROUP BY t, direction"


def reads(method: Callable[Concatenate[Record, P], R]) -> Callable[Concatenate[Record, P], R]:
    """The given method, which now refuses a file that is damaged."""

    @wraps(method)
    def read(record: Record, /, *args: P.args, **more: P.kwargs) -> R:
        try:
            return method(record, *args, **more)
        except TunefreeError:
            raise
        except (sqlite3.DatabaseError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"'{record.path}' cannot be read as a run file ({error}); use a backup copy"
            ) from error

    return read


class Record:
    """The run file, open for writing by its run or for reading by anyone."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path | None, lock: FileLock | None = None
    ) -> None:
        self._connection, self.path, self._lock = connection, path, lock
        if lock is not None:
            WRITING.add(connection)
        self._store = Store(connection, str(path))
        self._log = LEAST_LOG  # pages
        self._writing: Future[None] | None = None
        self._started, self._took = 0.0, 0.0  # the last commit, in seconds

    @property
    def connection(self) -> sqlite3.Connection:
        """The open file, which may have further tables, once nothing is being written into it."""
        self.settle()
        return self._connection

    def settle(self) -> None:
        """Wait until all commits are in the file; raises their errors."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    @classmethod
    def create(cls, path: Path | None, facts: Facts) -> Record:
        """A new run file; without a path a record in memory that stores no states."""
        if path is not None and path.exists():
            problem = "exists already and is not overwritten"
            remedy = f"choose another path, or resume it: {facts.how_to_resume(path)}"
            if path.is_dir():
                problem, remedy = "is a folder", f"give a file, such as {path}/a.sqlite"
            raise ConfigError(problem, remedy, setting="out", value=str(path))
        lock = None
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                lock = acquire_lock(path)
            connection = connect(path)
            connection.execute(f"PRAGMA page_size = {PAGE}")
            use_wal(connection)
            connection.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {VERSION};")
            connection.executemany(NOTE, json_rows(replace(facts, writer=this_process()).as_dict()))
            connection.execute("COMMIT")
        except (OSError, sqlite3.OperationalError) as error:
            raise cannot_write(path, error) from error
        return cls(connection, path, lock)

    @classmethod
    def open(cls, path: Path) -> Record:
        """An existing run file, for reading."""
        check_run_file(path)
        return cls(sqlite3.connect(read_only(path), uri=True), path)

    @classmethod
    def resume(cls, path: Path, **changes: Any) -> Record:
        """An existing run file, for writing further steps, with these facts changed."""
        check_run_file(path)
        record = cls(connect(path), path)
        record.acquire()
        if changes:
            record.note(**changes)
        return record

    def acquire(self) -> None:
        """Start writing, or continue after `release`; nobody else may write from now on."""
        if self.path is None or self._lock is not None:
            return
        self._lock = acquire_lock(self.path)
        WRITING.add(self._connection)
        self._connection.execute(f"PRAGMA busy_timeout = {PATIENCE}")
        use_wal(self._connection)
        self._connection.execute(CHECKPOINTS)  # a file of an earlier version has none

    def close(self) -> None:
        self.release()
        self._connection.close()

    def release(self) -> None:
        """Stop writing: another process may write, and the run is one file again."""
        if self._writing is not None:
            wait([self._writing])
        if self._lock is not None and self.path is not None:
            with suppress(sqlite3.OperationalError):  # somebody is reading it
                self._connection.execute("PRAGMA busy_timeout = 0")
                self._connection.execute("PRAGMA journal_mode = DELETE")
            lock_path(self.path).unlink(missing_ok=True)
            self._lock.release()
            self._lock = None
            WRITING.discard(self._connection)

    def note(self, **changes: Any) -> None:
        """Change facts about the whole run, each by its name in `Facts`."""
        facts = replace(Facts(), **changes)
        self.settle()
        with self._store.transaction():
            self.connection.executemany(
                NOTE, json_rows({name: getattr(facts, name) for name in changes})
            )

    @reads
    def facts(self) -> Facts:
        """Everything that is known about the run."""
        rows = self.connection.execute("SELECT key, value FROM run")
        return Facts.read({key: json.loads(text) for key, text in rows})

    @property
    def state(self) -> str:
        """running, done, diverged, or interrupted: a run that nobody writes is not running."""
        state = self.facts().state
        if state != "running" or self.path is None or self._lock is not None:
            return state
        return state if is_locked(self.path) else "interrupted"

    @reads
    def summary(self) -> Summary:
        """The run so far, as commands and reports show it."""
        with self._snapshot():
            return Summary(
                self.path,
                replace(self.facts(), state=self.state),
                self._history(),
                self.staleness(),
                self.uploads(),
                Counter(reason for *_, reason in self.absences()),
                self.quarantined(),
                clients := self.clients(),
                outliers(clients),
                self.left_out(),
            )

    def theta_sha256(self) -> str:
        """A fingerprint of the model at the last checkpoint."""
        return hashlib.sha256(self.vectors()["theta"].tobytes()).hexdigest()

    def commit(
        self,
        lines: Sequence[Line],
        states: Mapping[int, Vectors],
        in_flight: Collection[int] = (),
        new: Mapping[int, bytes] = {},
    ) -> None:
        """Steps, the states after the last of them and the downloads in flight: all or nothing.

        `states` maps an owner to its vectors, which must stay as they are. `in_flight` are the
        steps whose downloads clients still work on; `new` has the bytes of the new ones. It returns
        at once: `settle` waits.
        """
        if not lines:
            return
        self.settle()
        self._lengthen_log(sum(v.nbytes for each in states.values() for v in each.values()))
        given = list(lines), states, set(in_flight), new
        if self.path is None:
            self._commit(*given)
        else:
            self._writing = Future()
            Thread(target=self._commit_into, args=(self._writing, *given)).start()

    def _commit_into(self, writing: Future[None], *given: Any) -> None:
        """In a new thread: one that waits for the next commit would be lost, and its last commit
        with it, when Python collects a run that was abandoned in mid-loop."""
        try:
            self._commit(*given)
        except BaseException as error:
            writing.set_exception(error)
        else:
            writing.set_result(None)

    def costs_little(self) -> bool:
        """Whether one more commit now would take a small share of the time since the last."""
        if self._writing is not None and not self._writing.done():
            return False
        return time.perf_counter() - self._started >= self._took / SHARE

    def _commit(
        self,
        lines: Sequence[Line],
        states: Mapping[int, Vectors],
        in_flight: Collection[int],
        new: Mapping[int, bytes],
    ) -> None:
        self._started = time.perf_counter()
        db, last = self._connection, lines[-1].t
        with self._store.transaction():
            for line in lines:
                self._write(line)
            for owner, vectors in states.items():
                self._store.put(owner, last, vectors)
            db.executemany("INSERT INTO held VALUES (?, ?)", new.items())
            written = [last, json.dumps(sorted(in_flight))]
            db.execute("INSERT OR REPLACE INTO checkpoint VALUES (?, ?)", written)
            self._thin(sum(v.nbytes for each in states.values() for v in each.values()))
        self._took = time.perf_counter() - self._started

    def _thin(self, size: int) -> None:
        """Forget the checkpoints that need not stay, if the last one has this many bytes.

        The last ten stay and those after rounds 1, 2, 4, 8, ...; of large ones only the last.
        """
        db, room = self._connection, min(LAST, ROOM // max(1, size)) if self.path else 1
        kept = [t for (t,) in db.execute("SELECT t FROM checkpoint ORDER BY t")]
        early = [t for t in kept if is_early(t)] if room == LAST else []
        for t in sorted(set(kept[: -max(1, room)]) - set(early)):
            place = kept.index(t)
            before = kept[place - 1] if place else -2
            self._store.forget(before, t, kept[place + 1])
            kept.remove(t)
            db.execute("DELETE FROM checkpoint WHERE t = ?", (t,))
        db.execute(NO_LONGER_HELD)

    def checkpoints(self) -> list[int]:
        """The steps that the run can go back to."""
        tables = "SELECT 1 FROM sqlite_master WHERE name = 'checkpoint'"
        if not self.connection.execute(tables).fetchone():
            return []
        return [t for (t,) in self.connection.execute("SELECT t FROM checkpoint ORDER BY t")]

    def go_back(self, t: int) -> None:
        """Forget everything after this checkpoint."""
        self.settle()
        with self._store.transaction():
            for table in ("step", "reply", "score", "traffic", "absent", "vector", "checkpoint"):
                self.connection.execute(f"DELETE FROM {table} WHERE t > ?", (t,))
            self.connection.execute(NO_LONGER_HELD)
            self.connection.execute(NOTE, ("state", json.dumps("interrupted")))

    def _lengthen_log(self, size: int) -> None:
        pages = min(MOST_LOG, COMMITS_IN_LOG * size // PAGE)
        if pages > self._log:
            self._connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")
            self._log = pages

    def _write(self, line: Line) -> None:
        db = self._connection
        db.execute("INSERT INTO step VALUES (?, ?, ?, ?)", line[:4])
        for table, rows in (
            ("reply VALUES (?, ?, ?)", line.replies),
            ("score VALUES (?, ?, ?)", line.scores.items()),
            ("traffic VALUES (?, ?, ?, ?, ?, ?)", line.traffic),
            ("absent VALUES (?, ?, ?, ?)", line.absent),
        ):
            some: Iterable[Any] = rows
            db.executemany(f"INSERT INTO {table}", [(line.t, *row) for row in some])

    def replace(self, owner: int, vectors: Vectors) -> None:
        """Replace an owner's vectors between two steps."""
        last = self.last()
        self.settle()
        with self._store.transaction():
            self._store.put(owner, -1 if last is None else last[0], vectors)

    @reads
    def vectors(self, owner: int = SERVER) -> dict[str, NDArray[Any]]:
        """The last committed vectors of the server or of a client; none if it has none."""
        self.settle()
        return self._store.get(owner)

    @reads
    def quarantined(self) -> list[int]:
        """The clients that are not asked now, in order."""
        rows = self.vectors(GAUGE).get(QUARANTINE, np.empty((0, 3))).tolist()
        return sorted(client for client, _, until in rows if until < 0)

    @reads
    def left_out(self) -> list[int]:
        """The clients that are left out for good, in order."""
        return [int(client) for client in self.vectors(GAUGE).get(LEFT, ())]

    @reads
    def clients(self) -> list[Evidence]:
        """What is known about each client that was asked, in order."""
        ask = self.connection.execute
        used = {c: rest for c, *rest in ask(OF_CLIENTS)}
        absent: dict[int, int] = dict(ask("SELECT client, COUNT(*) FROM absent GROUP BY client"))
        seen = compared(self.vectors(GAUGE))
        found = []
        for client in sorted(used.keys() | absent.keys()):
            uploads, tau = used.get(client, (0, 0.0))
            one = seen.get(client, Evidence(client, 0, 0, 0.0))
            found.append(one._replace(uploads=uploads, absent=absent.get(client, 0), tau=tau))
        return found

    @reads
    def in_flight(self) -> dict[int, bytes]:
        """The encoded downloads that clients still work on, by step."""
        held = dict(self.connection.execute("SELECT t, message FROM held"))
        if not (steps := self.checkpoints()):
            return held
        now = "SELECT held FROM checkpoint WHERE t = ?"
        (listed,) = self.connection.execute(now, steps[-1:]).fetchone()
        return {t: held[t] for t in json.loads(listed)}

    @reads
    def last(self) -> tuple[int, float] | None:
        """The last committed step and its virtual time, if there is one."""
        row: tuple[int, float] | None = self.connection.execute(
            "SELECT t, time FROM step ORDER BY t DESC LIMIT 1"
        ).fetchone()
        return row

    @reads
    def uploads(self) -> dict[int, int]:
        """How many uploads of each participating client were used, without the opening."""
        query = "SELECT client, COUNT(*) FROM reply WHERE t >= 0 GROUP BY client"
        return dict(self.connection.execute(query))

    @reads
    def staleness(self) -> dict[int, int]:
        """How many replies had each staleness, without the opening."""
        query = "SELECT tau, COUNT(*) FROM reply WHERE t >= 0 GROUP BY tau ORDER BY tau"
        return dict(self.connection.execute(query))

    @reads
    def absences(self) -> list[tuple[int, int, int, str]]:
        """(t, exchange, client, reason) of every reply that was missing or refused."""
        return list(self.connection.execute("SELECT t, exchange, client, reason FROM absent"))

    @reads
    def history(self) -> list[Row]:
        """One row per step: cumulative samples, seconds and bits; who took part; the scores."""
        with self._snapshot():
            return self._history()

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """All queries see the file as it is now, even if steps are committed meanwhile."""
        self.connection.execute("BEGIN")
        try:
            yield
        finally:
            self.connection.rollback()  # it changed nothing, and commits nothing if it is damaged

    def _history(self) -> list[Row]:
        ask = self.connection.execute
        replies = {t: rest for t, *rest in ask(REPLIES)}
        absent: dict[int, int] = dict(ask("SELECT t, COUNT(*) FROM absent GROUP BY t"))
        bits: dict[int, dict[str, int]] = defaultdict(dict)
        for t, direction, whole, values in ask(TRAFFIC):
            bits[t] |= {f"bits_{direction}": whole, f"value_bits_{direction}": values}
        scores: dict[int, dict[str, float]] = defaultdict(dict)
        for t, name, value in ask("SELECT t, name, value FROM score"):
            scores[t][name] = value
        rows, steps = Rows(), ask("SELECT t, drawn, seconds, time FROM step ORDER BY t")
        return [
            rows.add_counts((t, *costs), replies.get(t, (0,)), absent.get(t, 0), bits[t], scores[t])
            for t, *costs in steps
        ]


def summarise(path: Path) -> Summary:
    """The run so far in a file, which may be growing; refuses other files."""
    with closing(Record.open(path)) as record:
        return record.summary()


def is_early(t: int) -> bool:
    """Whether step t is the last of 1, 2, 4, 8, ... rounds.

    >>> [t for t in range(-1, 20) if is_early(t)]
    [0, 1, 3, 7, 15]
    """
    return t >= 0 and (t + 1) & t == 0


def json_rows(facts: Mapping[str, object]) -> list[tuple[str, str]]:
    return [(name, json.dumps(value)) for name, value in facts.items()]


def connect(path: Path | None) -> sqlite3.Connection:
    """A connection for one thread at a time, to a file or to memory."""
    return sqlite3.connect(path or ":memory:", isolation_level=None, check_same_thread=False)


def use_wal(connection: sqlite3.Connection) -> None:
    """WAL for readers beside the writer; a power cut may lose the last steps, never the file."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")


def check_run_file(path: Path) -> None:
    """Refuse what is not a run file, and run files of another layout."""
    if not path.is_file():
        raise ConfigError(f"there is no run file at '{path}'; check the path")
    try:
        with closing(sqlite3.connect(read_only(path), uri=True)) as reader:
            (version,) = reader.execute("PRAGMA user_version").fetchone()
            tables = {name for (name,) in reader.execute("SELECT name FROM sqlite_master")}
    except sqlite3.DatabaseError as error:
        raise ConfigError(f"'{path}' is not a run file ({error})") from error
    if "step" not in tables:
        raise ConfigError(f"'{path}' is not a run file (it has no steps table)")
    if version != VERSION:
        other = "a newer" if version > VERSION else "an older"
        raise ConfigError(
            f"'{path}' has layout version {version}, and this tunefree reads version {VERSION}; "
            f"read it with {other} tunefree"
        )
