"""A client's states on its own disk: the one that the server accepted, and a newer one beside it.

Flower has a client's context in memory only, and its own nodes start a new process per message, so
a client's states are in a file, one per run. Each is stored under the key of the job that it came
from, before that job's reply is sent. The server then tells with every job which reply it used
last, and so which of the two states counts; the new one replaces the other.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from tunefree.core import Client
from tunefree.errors import ConfigError
from tunefree.fleet.states import arrays, restore
from tunefree.record import store
from tunefree.record.store import Store

SCHEMA = (
    "CREATE TABLE reply (owner INTEGER PRIMARY KEY, key TEXT NOT NULL); -- the job of a state\n"
    + store.SCHEMA
)
TAKEN_PART = "participations.sqlite"


class ClientState:
    """The file of one client in one run."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path, isolation_level=None, timeout=60)
        self._store = Store(self._db, str(path))
        if not self._db.execute("SELECT 1 FROM sqlite_master").fetchone():
            self._db.executescript(f"BEGIN; {SCHEMA} COMMIT;")

    def _owners(self) -> dict[str, int]:
        """By its job, where a state is: owner 0 or 1."""
        return dict(self._db.execute("SELECT key, owner FROM reply"))

    def after(self, ack: str, first: Client) -> Client | None:
        """The state after the reply that the server used last; None if that state is not here.

        If the server used none, it is the one that a client starts with.
        """
        if not ack:
            return first
        owner = self._owners().get(ack)
        return None if owner is None else restore(first, self._store.get(owner))

    def propose(self, ack: str, key: str, t: int, state: Client) -> None:
        """Store the state of a new reply beside the state after `ack`."""
        kept = self._owners().get(ack)  # None if the server used none: then both go
        owner = 0 if kept is None else 1 - kept
        with self._store.transaction():
            for table in ("reply", "vector"):
                self._db.execute(f"DELETE FROM {table} WHERE owner IS NOT ?", (kept,))
            self._db.execute("INSERT INTO reply VALUES (?, ?)", (owner, key))
            self._store.put(owner, t, arrays(state))

    def close(self) -> None:
        self._db.close()


def take_part(folder: Path, job: bytes, limit: int) -> None:
    """Count one more upload to a private run; refused beyond this client's limit, if it has one.

    The count is over all runs, and no server can lower it. What is asked for again in every detail
    is counted once, since it gives the same upload again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(folder / TAKEN_PART, timeout=60)) as db, db:
        db.execute("CREATE TABLE IF NOT EXISTS upload (job TEXT PRIMARY KEY) WITHOUT ROWID")
        db.execute("PRAGMA synchronous = FULL")
        name = hashlib.sha256(job).hexdigest()
        db.execute("INSERT OR IGNORE INTO upload VALUES (?)", (name,))
        (count,) = db.execute("SELECT COUNT(*) FROM upload").fetchone()
        if limit and count > limit:
            raise ConfigError(
                f"this client has sent {limit} private uploads, and its node allows no more",
                "raise participations in its node's config, or go on without it",
            )


def folder_of(node_config: Mapping[str, Any], node_id: int) -> Path:
    """The folder `store` of the node's config, or one beside the SuperNode."""
    name = str(node_config.get("partition-id", f"node-{node_id}"))
    return Path(str(node_config.get("store", Path("tunefree-clients") / name)))


def state_path(node_config: Mapping[str, Any], node_id: int, run: str) -> Path:
    """One file per run."""
    return folder_of(node_config, node_id) / f"{run}.sqlite"
