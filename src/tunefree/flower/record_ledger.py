"""A node's ledger at record level, on its own disk: what left its records, in all runs together.

A job is entered before it is worked on. Its reply is kept until the run's next one, so that a job
that is asked for again in every detail gives the same reply again and costs nothing; one that was
killed before it had a reply is paid for twice. No message can raise the node's limit.
"""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from tunefree.errors import ConfigError
from tunefree.privacy.accountant import ROUGH, Gaussian, epsilon
from tunefree.settings import checked

TABLES = """
CREATE TABLE IF NOT EXISTS released (
    run TEXT NOT NULL, job TEXT NOT NULL,
    sigma REAL NOT NULL, q REAL NOT NULL, times INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS reply (run TEXT PRIMARY KEY, job TEXT NOT NULL, data BLOB NOT NULL);
"""
DELTA = 1e-5  # of the limit, unless the node's config has another


class RecordLedger:
    """The ledger of one node; its limit is an epsilon, over all runs on the same records."""

    def __init__(self, folder: Path, limit: float, delta: float = DELTA) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "privacy.sqlite"
        self._db = sqlite3.connect(path, isolation_level=None, timeout=60)
        self._db.execute("PRAGMA synchronous = FULL")  # on disk, even if the power fails
        self._db.executescript(TABLES)
        self.limit, self.delta = limit, delta

    def releases(self, run: str | None = None) -> Counter[Gaussian]:
        """All that was entered, or all of one run."""
        some = "SELECT sigma, q, SUM(times) FROM released WHERE ?1 IS NULL OR run = ?1"
        rows = self._db.execute(f"{some} GROUP BY sigma, q", (run,))
        return Counter({Gaussian(sigma, q): times for sigma, q, times in rows})

    def spent(self) -> float:
        """The epsilon spent on this node's records, by all runs."""
        return epsilon(self.releases(), self.delta, ROUGH)

    def enter(
        self, run: str, job: str, more: Counter[Gaussian], allowed: Counter[Gaussian]
    ) -> None:
        """Pay for a job; refused beyond what its run was promised, or beyond the limit."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            rows = [(run, job, *release, times) for release, times in more.items()]
            self._db.executemany("INSERT INTO released VALUES (?, ?, ?, ?, ?)", rows)
            if not self.releases(run) <= allowed:
                raise ConfigError(
                    "this run has used up what it promised for this client's records: it took part "
                    "as often as was accounted for",
                    "raise {participations} in a new run",
                )
            if math.isfinite(self.limit) and (needed := self.spent()) > self.limit:
                raise ConfigError(
                    f"this would bring what all runs spent on this client's records to epsilon = "
                    f"{needed:.3g}, and its node allows {self.limit:g}",
                    "go on without it; only its node's config has this limit",
                )
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def reply(self, run: str, job: str) -> bytes | None:
        """What was answered to this very job, if it was the run's last."""
        row = self._db.execute("SELECT data FROM reply WHERE (run, job) = (?, ?)", (run, job))
        found = row.fetchone()
        return None if found is None else bytes(found[0])

    def keep(self, run: str, job: str, data: bytes) -> None:
        """Keep the reply to a job in place of the one before."""
        self._db.execute("INSERT OR REPLACE INTO reply VALUES (?, ?, ?)", (run, job, data))

    def close(self) -> None:
        self._db.close()


def limit_of(node_config: Mapping[str, Any]) -> float:
    """The epsilon that may be spent on this node's records, by its own config; without: infinite.

    >>> limit_of({"limit": 8}), limit_of({})
    (8.0, inf)
    """
    if "limit" not in node_config:
        return math.inf
    given = node_config["limit"]
    return cast("float", checked("limit", given, float, {"least": 0.0, "below": math.inf}))
