"""The ledger: what has been given away, on disk before it leaves, and never twice.

An entry and the value that is released are one transaction. A process that is killed before it has
released nothing; one that is killed after it finds the same value again and releases that. So no
resumed run and no repeated request spends anything more, or shows one sum under two noises.

The server has one for its run. At record level every node has its own, on its own disk and with
its own limit, over all runs: no message can raise it.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from tunefree.errors import ConfigError
from tunefree.privacy.accountant import Gaussian, epsilon, sigma_for

TABLES = """
CREATE TABLE IF NOT EXISTS released (
    key TEXT PRIMARY KEY,      -- of one release, such as the round
    sigma REAL NOT NULL, q REAL NOT NULL,
    times INTEGER NOT NULL,    -- how many releases of this kind it is
    everybody INTEGER NOT NULL, -- or only the clients in the table below
    value BLOB                 -- what was released; of the last one only
);
CREATE TABLE IF NOT EXISTS taken_part (
    client INTEGER NOT NULL, key TEXT NOT NULL, PRIMARY KEY (client, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS secret (seed TEXT NOT NULL); -- of the coins that decide who takes part
"""
EACH = "SELECT client, SUM(times / (sigma * sigma)) FROM taken_part JOIN released USING (key)"


class Ledger:
    """The releases of one budget; one process at a time writes an entry."""

    def __init__(self, db: sqlite3.Connection, budget: float, delta: float) -> None:
        self._db, self.budget, self.delta = db, budget, delta
        db.executescript(TABLES)

    @classmethod
    def open(cls, path: Path, budget: float, delta: float) -> Ledger:
        """The ledger in a file, which is created if there is none."""
        path.parent.mkdir(parents=True, exist_ok=True)
        return cls(sqlite3.connect(path, isolation_level=None), budget, delta)

    def spent(self) -> float:
        """The epsilon spent so far, by the client that has given most."""
        return self._epsilon({})

    def allows(self, release: Gaussian, times: int = 1) -> bool:
        """Whether everybody can be in so many more releases."""
        return self._epsilon({release: times}) <= self.budget

    def left(self, clients: Iterable[int], release: Gaussian) -> dict[int, int]:
        """How many more such releases each of these can be in; all must be without coins."""
        given, limit = self._mu2(), sigma_for(self.budget, self.delta, rounds=1) ** -2 * (1 + 1e-9)
        return {c: max(0, int((limit - given.get(c, 0.0)) * release.sigma**2)) for c in clients}

    def has(self, key: str) -> bool:
        """Whether this was entered, and so may have left."""
        return (
            self._db.execute("SELECT 1 FROM released WHERE key = ?", (key,)).fetchone() is not None
        )

    def secret(self) -> int:
        """A seed from the system's entropy, the same as long as the ledger exists."""
        new = "INSERT INTO secret SELECT ? WHERE NOT EXISTS (SELECT 1 FROM secret)"
        self._db.execute(new, (secrets.token_hex(16),))
        return int(self._db.execute("SELECT seed FROM secret").fetchone()[0], 16)

    def once(
        self,
        key: str,
        release: Gaussian,
        value: Callable[[], bytes],
        clients: Collection[int] | None = None,
        times: int = 1,
    ) -> bytes:
        """The value to release under this key: a new one, or the one that was stored before.

        `clients` are those it is about, if that is known; otherwise it counts for everybody.
        """
        self._db.execute("PRAGMA synchronous = FULL")  # on disk, even if the power fails
        self._db.execute("BEGIN IMMEDIATE")
        try:
            found = self._db.execute("SELECT value FROM released WHERE key = ?", (key,)).fetchone()
            result = value() if found is None else found[0]
            if result is None:
                raise ConfigError(
                    f"{key} was released before, and later ones have followed",
                    "resume from the last step of the run file",
                )
            if found is None:
                self._db.execute("UPDATE released SET value = NULL WHERE value IS NOT NULL")
                entry = (key, *release, times, clients is None, result)
                self._db.execute("INSERT INTO released VALUES (?, ?, ?, ?, ?, ?)", entry)
                rows = [(client, key) for client in clients or ()]
                self._db.executemany("INSERT INTO taken_part VALUES (?, ?)", rows)
                if (needed := self.spent()) > self.budget * (1 + 1e-9):
                    raise ConfigError(
                        f"{key} would need epsilon = {needed:.3g}, and the budget is "
                        f"{self.budget:g}",
                        "stop here, or give a larger epsilon",
                    )
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        return bytes(result)

    def _mu2(self) -> dict[int, float]:
        return dict(self._db.execute(f"{EACH} GROUP BY client"))

    def _epsilon(self, more: Mapping[Gaussian, int]) -> float:
        """What these would bring it to, for everybody."""
        kinds = "SELECT sigma, q, SUM(times) FROM released WHERE everybody GROUP BY sigma, q"
        spent = Counter(more) + Counter({Gaussian(s, q): n for s, q, n in self._db.execute(kinds)})
        if mu2 := self._mu2():
            spent[Gaussian(max(mu2.values()) ** -0.5)] += 1
        return epsilon(spent, self.delta)
