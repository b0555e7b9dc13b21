"""Named vectors in SQLite: raw bytes with type, shape and crc32, never pickles.

A run file stores its server's and clients' states in such a table; a deployed client its own.
Each vector is stored with the step after which it is what it is. A run file has the last one and
those that its checkpoints need: at a checkpoint the last one until then counts.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tunefree.errors import ConfigError, RecordError

Vectors: TypeAlias = Mapping[str, NDArray[Any]]

SCHEMA = """
CREATE TABLE vector (
    owner INTEGER NOT NULL, field TEXT NOT NULL, t INTEGER NOT NULL,
    type TEXT NOT NULL, shape TEXT NOT NULL, crc32 INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (owner, field, t)
);
CREATE INDEX vector_t ON vector (t);
"""
PUT = "INSERT OR REPLACE INTO vector VALUES (?, ?, ?, ?, ?, ?, ?)"
GET = """
SELECT field, type, shape, crc32, data FROM vector AS v WHERE owner = ? AND t = (
    SELECT MAX(t) FROM vector WHERE owner = v.owner AND field = v.field
)
"""
FORGET = """
DELETE FROM vector WHERE t > :before AND t <= :gone AND EXISTS (
    SELECT 1 FROM vector AS later WHERE later.owner = vector.owner AND later.field = vector.field
    AND later.t > vector.t AND later.t <= :after
)
"""  # what only a checkpoint that goes needs, between those that stay


class Store:
    """The last vectors of each owner, by number; writes are all or nothing.

    Several writes belong together inside `with store.transaction()`.
    """

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self.db, self._name = connection, name

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; on a full disk the previous content stays."""
        try:
            self.db.execute("BEGIN IMMEDIATE")
            yield
            self.db.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            self._roll_back()
            if isinstance(error, sqlite3.IntegrityError):  # our own mistake
                raise
            raise RecordError(
                f"'{self._name}' can no longer be written ({error}); everything committed before "
                "is still in it"
            ) from error
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        with suppress(sqlite3.DatabaseError):  # some failures have rolled back already
            self.db.execute("ROLLBACK")

    def put(self, owner: int, t: int, vectors: Vectors) -> None:
        """The fields of an owner as of step t; belongs inside a transaction."""
        self.db.executemany(
            PUT, ((owner, field, t, *pack(vector)) for field, vector in vectors.items())
        )

    def forget(self, before: int, gone: int, after: int) -> None:
        """Delete what no checkpoint needs once one is gone, the next ones being as given."""
        self.db.execute(FORGET, {"before": before, "gone": gone, "after": after})

    def get(self, owner: int) -> dict[str, NDArray[Any]]:
        """The owner's vectors by field; empty if there are none."""
        rows = self.db.execute(GET, (owner,))
        return {field: unpack(self._name, field, *rest) for field, *rest in rows}


def pack(vector: NDArray[Any]) -> tuple[str, str, int, memoryview]:
    data = np.ascontiguousarray(vector).reshape(-1).view(np.uint8).data
    return vector.dtype.str, json.dumps(vector.shape), zlib.crc32(data), data


def unpack(name: str, field: str, kind: str, shape: str, crc32: int, data: bytes) -> NDArray[Any]:
    if zlib.crc32(data) != crc32:
        raise ConfigError(
            f"vector {field!r} in '{name}' is damaged (its crc32 does not match); use a backup copy"
        )
    return np.frombuffer(data, dtype=kind).reshape(json.loads(shape)).copy()
