"""A run is one SQLite file: settings, every step's scores and traffic, and all states.

One transaction per step, so that a killed run keeps all it had committed. Vectors are raw bytes
with type, shape and crc32, never pickles. WAL mode lets others read while a run is being written.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tunefree.errors import ConfigError

VERSION = 1
SERVER = -1  # the owner of the server's vectors; clients own theirs by number
Row: TypeAlias = dict[str, float]
Vectors: TypeAlias = Mapping[str, NDArray[Any]]

SCHEMA = """
CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE step (
    t INTEGER PRIMARY KEY,     -- -1 is the opening
    drawn INTEGER NOT NULL,    -- samples drawn by all clients
    seconds REAL NOT NULL,     -- wall time of the step, evaluation left out
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
    messages INTEGER NOT NULL,   -- so many were received
    bits INTEGER NOT NULL,       -- of all of them together
    value_bits INTEGER NOT NULL, -- without indices and scales, as some papers count
    PRIMARY KEY (t, exchange, direction)
) WITHOUT ROWID;
CREATE TABLE vector (
    owner INTEGER NOT NULL, field TEXT NOT NULL, t INTEGER NOT NULL,
    type TEXT NOT NULL, shape TEXT NOT NULL, crc32 INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (owner, field)
);
"""


class Record:
    """The run file, open for writing by its run or for reading by anyone."""

    def __init__(self, connection: sqlite3.Connection, path: Path | None) -> None:
        self._db = connection
        self.path = path

    @classmethod
    def create(cls, path: Path | None, facts: Mapping[str, object]) -> Record:
        """A new run file, or one in memory that keeps no states if no path is given."""
        if path is not None and path.exists():
            raise ConfigError(
                f"run.out = '{path}' exists already and is left as it is; choose another path"
            )
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(path or ":memory:", isolation_level=None)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.executescript(SCHEMA)
            connection.execute(f"PRAGMA user_version = {VERSION}")
        except (OSError, sqlite3.OperationalError) as error:
            raise ConfigError(
                f"run.out = '{path}' cannot be written ({error}); choose a path in a folder that "
                "you may write to"
            ) from error
        record = cls(connection, path)
        record.note(**facts)
        return record

    @classmethod
    def open(cls, path: Path) -> Record:
        """An existing run file, for reading."""
        if not path.is_file():
            raise ConfigError(f"there is no run file at '{path}'; check the path")
        try:
            connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
            (version,) = connection.execute("PRAGMA user_version").fetchone()
        except sqlite3.DatabaseError as error:
            raise ConfigError(f"'{path}' is not a run file ({error})") from error
        if version != VERSION:
            raise ConfigError(
                f"'{path}' has layout version {version}; this tunefree reads version {VERSION}"
            )
        return cls(connection, path)

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def note(self, **facts: object) -> None:
        """Set facts about the whole run: settings, versions, state, ..."""
        with self.transaction():
            self._db.executemany(
                "INSERT OR REPLACE INTO run VALUES (?, ?)",
                [(key, json.dumps(value)) for key, value in facts.items()],
            )

    def facts(self) -> dict[str, Any]:
        """Everything that was noted about the run."""
        return {k: json.loads(v) for k, v in self._db.execute("SELECT key, value FROM run")}

    def commit(
        self,
        t: int,
        *,
        replies: Iterable[tuple[int, int]],
        drawn: int,
        seconds: float,
        time: float,
        scores: Mapping[str, float],
        traffic: Sequence[tuple[int, str, int, int, int]],
        states: Mapping[int, Vectors],
    ) -> None:
        """One step, whole or not at all.

        `replies` are (client, tau) of those who took part; `states` maps an owner to its vectors.
        """
        with self.transaction():
            self._db.execute("INSERT INTO step VALUES (?, ?, ?, ?)", (t, drawn, seconds, time))
            self._db.executemany(
                "INSERT INTO reply VALUES (?, ?, ?)", [(t, *reply) for reply in replies]
            )
            self._db.executemany(
                "INSERT INTO score VALUES (?, ?, ?)", [(t, *score) for score in scores.items()]
            )
            self._db.executemany(
                "INSERT INTO traffic VALUES (?, ?, ?, ?, ?, ?)", [(t, *line) for line in traffic]
            )
            self._db.executemany(
                "INSERT OR REPLACE INTO vector VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    (owner, field, t, *packed(vector))
                    for owner, vectors in states.items()
                    for field, vector in vectors.items()
                ),
            )

    def vectors(self, owner: int = SERVER) -> dict[str, NDArray[Any]]:
        """The last committed vectors of the server or of a client."""
        rows = self._db.execute(
            "SELECT field, type, shape, crc32, data FROM vector WHERE owner = ?", (owner,)
        )
        return {field: unpacked(field, *rest) for field, *rest in rows}

    def uploads(self) -> dict[int, int]:
        """How often each client that ever took part was heard, the opening left out."""
        query = "SELECT client, COUNT(*) FROM reply WHERE t >= 0 GROUP BY client"
        return dict(self._db.execute(query))

    def staleness(self) -> dict[int, int]:
        """How many replies had each staleness, the opening left out."""
        query = "SELECT tau, COUNT(*) FROM reply WHERE t >= 0 GROUP BY tau ORDER BY tau"
        return dict(self._db.execute(query))

    def history(self) -> list[Row]:
        """One row per step: cumulative samples, seconds and bits; who took part; the scores."""
        rows: dict[int, Row] = {}
        drawn, seconds = 0, 0.0
        for t, new_drawn, new_seconds, time in self._db.execute("SELECT * FROM step ORDER BY t"):
            drawn, seconds = drawn + new_drawn, seconds + new_seconds
            rows[t] = {"t": t, "drawn": drawn, "seconds": seconds, "time": time, "clients": 0}
        for t, clients, mean, most in self._db.execute(
            "SELECT t, COUNT(*), AVG(tau), MAX(tau) FROM reply GROUP BY t"
        ):
            rows[t] |= {"clients": clients, "tau_mean": mean, "tau_max": most}
        for kind in ("bits", "value_bits"):
            for direction in ("up", "down"):
                new = dict(
                    self._db.execute(
                        f"SELECT t, SUM({kind}) FROM traffic WHERE direction = ? GROUP BY t",
                        (direction,),
                    )
                )
                total = 0
                for t, row in rows.items():
                    total += new.get(t, 0)
                    row[f"{kind}_{direction}"] = total
        for t, name, value in self._db.execute("SELECT t, name, value FROM score"):
            rows[t][name] = value
        return list(rows.values())


def packed(vector: NDArray[Any]) -> tuple[str, str, int, bytes]:
    data = np.ascontiguousarray(vector).tobytes()
    return vector.dtype.str, json.dumps(vector.shape), zlib.crc32(data), data


def unpacked(field: str, kind: str, shape: str, crc32: int, data: bytes) -> NDArray[Any]:
    if zlib.crc32(data) != crc32:
        raise ConfigError(f"vector {field!r} of the run file is damaged (its crc32 does not match)")
    return np.frombuffer(data, dtype=kind).reshape(json.loads(shape)).copy()
