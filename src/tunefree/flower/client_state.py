"""A client's state on its own disk: the one that the server accepted, and a newer one beside it.

Flower has a client's context in memory only, and its own nodes start a new process per message, so
a client's state is in a file, one per run. A state is stored as pending, with the key of its job,
before the reply is sent; it is accepted when the server reports that it used that reply.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tunefree.core import Client
from tunefree.fleet.states import arrays, restore
from tunefree.record import store
from tunefree.record.store import Store

ACCEPTED, PENDING = 0, 1
SCHEMA = (
    "CREATE TABLE reply (owner INTEGER PRIMARY KEY, key TEXT NOT NULL); -- the job of a state\n"
    + store.SCHEMA
)


class ClientState:
    """The file of one client in one run."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path, isolation_level=None, timeout=60)
        self._store = Store(self._db, str(path))
        if not self._db.execute("SELECT 1 FROM sqlite_master").fetchone():
            self._db.executescript(f"BEGIN; {SCHEMA} COMMIT;")

    def keys(self) -> dict[int, str]:
        """The jobs of the accepted and of the pending state, where there are such states."""
        return dict(self._db.execute("SELECT owner, key FROM reply"))

    def settle(self, ack: str) -> bool:
        """Accept the state of the reply that the server used last; False if that is not here.

        If the server used none, the client starts anew and its stored states are deleted.
        """
        keys = self.keys()
        if not ack:
            self._drop(ACCEPTED, PENDING)
        elif keys.get(PENDING) == ack:
            with self._store.transaction():
                self._delete(ACCEPTED)
                for table in ("reply", "vector"):
                    self._db.execute(f"UPDATE {table} SET owner = {ACCEPTED}")
        return not ack or ack in keys.values()

    def state(self, first: Client) -> Client:
        """The accepted state, or the one that a client starts with."""
        if ACCEPTED not in self.keys():
            return first
        return restore(first, self._store.get(ACCEPTED))

    def propose(self, key: str, t: int, state: Client) -> None:
        """Store a state as pending, until the server has accepted its reply."""
        with self._store.transaction():
            self._delete(PENDING)
            self._db.execute("INSERT INTO reply VALUES (?, ?)", (PENDING, key))
            self._store.put(PENDING, t, arrays(state))

    def _drop(self, *owners: int) -> None:
        with self._store.transaction():
            for owner in owners:
                self._delete(owner)

    def _delete(self, owner: int) -> None:
        for table in ("reply", "vector"):
            self._db.execute(f"DELETE FROM {table} WHERE owner = ?", (owner,))

    def close(self) -> None:
        self._db.close()


def state_path(node_config: Mapping[str, Any], node_id: int, run: str) -> Path:
    """One file per run in the folder `store` of the node's config, or beside the SuperNode."""
    name = str(node_config.get("partition-id", f"node-{node_id}"))
    folder = Path(str(node_config.get("store", Path("tunefree-clients") / name)))
    return folder / f"{run}.sqlite"
