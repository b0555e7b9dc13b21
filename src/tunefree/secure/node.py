"""A client's side of secure sums: bytes in, bytes out, and a record on disk before every answer.

Nothing is kept in memory between two calls, so a node that was killed goes on where its file says.
Every step is taken once per attempt; only 9 and 10 are answered again, to the same, with the same.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tunefree.errors import ConfigError, RecordError, WireError
from tunefree.secure import masks, messages
from tunefree.secure.arithmetic import split, threshold, to_integers
from tunefree.secure.messages import (
    LEAST,
    SHARE,
    Ids,
    Prekey,
    Reply,
    Request,
    Turn,
    decode,
    digest,
    ids,
)
from tunefree.secure.roster import Cohort, Identity, Roster, prekey_parts

JOINED, UPLOADED, AGREED, OPENED = 1, 2, 3, 4
BATCH, WAITING = 256, 1024  # prekeys at a time, and of a run that wait
SCHEMA = """
PRAGMA secure_delete = ON;
PRAGMA synchronous = EXTRA;
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS prekey (
    number INTEGER PRIMARY KEY AUTOINCREMENT, -- never given twice, even after a deletion
    run TEXT NOT NULL, seal BLOB NOT NULL, mask BLOB NOT NULL
);
INSERT INTO sqlite_sequence -- a node that has lost its file goes on with larger numbers
    SELECT 'prekey', CAST(8.64e10 * julianday('now') AS INTEGER)
    WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence);
CREATE TABLE IF NOT EXISTS seen ( -- each client's last prekey that was used
    run TEXT NOT NULL, node INTEGER NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (run, node)
);
CREATE TABLE IF NOT EXISTS attempt ( -- the last one of each run
    run TEXT PRIMARY KEY, round INTEGER NOT NULL, attempt INTEGER NOT NULL, stage INTEGER NOT NULL,
    invite BLOB NOT NULL, own BLOB NOT NULL, -- b, the private keys, and its own share of b
    sharers BLOB, held BLOB, down BLOB, survivors BLOB -- held: each peer's share of b and of s
);
CREATE TABLE IF NOT EXISTS work ( -- the result of the last attempt's job, until it is uploaded
    run TEXT PRIMARY KEY, round INTEGER NOT NULL, attempt INTEGER NOT NULL,
    work BLOB NOT NULL, result BLOB NOT NULL
);
COMMIT;
"""


class Node:
    """One client of a federation, with its file.

    Args:
        path: The file; no other client may use it, and it must not be copied or restored.
        identity: The client's own key, which is in the roster.
        roster: The roster, whose fingerprint the operators have compared.
        node: The client's partition-id.
        minimum: The least number of clients in a sum that it takes part in.
    """

    def __init__(
        self, path: Path, identity: Identity, roster: Roster, node: int, minimum: int
    ) -> None:
        if roster.keys.get(node) != identity.public:
            name = roster.federation
            raise ConfigError(f"the roster of '{name}' has another key for client {node}")
        if minimum < LEAST:
            raise ConfigError(f"a sum of {minimum} hides nobody", f"the least is {LEAST}")
        self._identity, self._roster, self._node, self._minimum = identity, roster, node, minimum
        try:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._db = sqlite3.connect(path, isolation_level=None, timeout=60)
            self._db.executescript(SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(f"'{path}' cannot be used for secure sums: {error}") from None

    @property
    def most(self) -> int:
        """How many bytes a message to this node may have."""
        return self._roster.most

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing, and on disk when it ends."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise RecordError(f"a file for secure sums cannot be used: {error}") from None
            raise

    def prekeys(self, run: str, count: int) -> bytes:
        """2. A batch of new prekeys."""
        if not 1 <= count <= BATCH or not 1 <= len(run) <= 64 or not run.isascii():
            raise WireError(f"prekeys come in batches of 1 to {BATCH}, for a run with a short name")
        keys = []
        with self._transaction():
            for _ in range(count):
                (seal, public_seal), (mask, public_mask) = masks.new_key(), masks.new_key()
                sql = "INSERT INTO prekey (run, seal, mask) VALUES (?, ?, ?)"
                row = self._db.execute(sql, (run, seal, mask))
                key = Prekey(self._node, row.lastrowid or 0, public_seal, public_mask, b"")
                parts = prekey_parts(self._roster, run, key)
                keys.append(key._replace(signature=self._identity.sign("prekey", *parts)))
            self._db.execute(
                "DELETE FROM prekey WHERE run = ? AND number <= ? - ?",
                (run, row.lastrowid, WAITING),
            )
        return messages.encode(messages.Prekeys(self._roster.hash, run, tuple(keys)))

    def join(self, data: bytes) -> bytes:
        """3 to 5. From an invitation to the shares for the peers."""
        cohort = Cohort(data, self._roster)
        cohort.check(self._minimum)
        if self._node not in cohort.keys:
            raise WireError(f"client {self._node} is invited to a cohort that it is not in")
        b = secrets.token_bytes(32)
        with self._transaction():
            self._check_later(cohort.turn)
            seal, mask = self._use_keys(cohort)
            own, boxes = self._shared(cohort, b, seal, mask)
            sql = "INSERT OR REPLACE INTO attempt VALUES (?, ?, ?, ?, ?, ?, NULL, NULL, NULL, NULL)"
            self._db.execute(sql, (*cohort.turn, JOINED, data, b + seal + mask + own))
        return self._reply(cohort.turn, messages.SHARES, masks.promise(b), *boxes)

    def _check_later(self, turn: Turn) -> None:
        """3. No attempt comes twice, and none in a round whose sum was opened."""
        sql = "SELECT round, attempt, stage FROM attempt WHERE run = ?"
        last = self._db.execute(sql, (turn.run,)).fetchone()
        if last and (turn.round, turn.attempt) <= last[:2]:
            raise WireError(
                f"round {turn.round}, attempt {turn.attempt} is not after this node's last, round "
                f"{last[0]}, attempt {last[1]}"
            )
        if last and last[2] == OPENED and turn.round == last[0]:
            raise WireError(f"this node has opened a sum of round {turn.round} already")

    def _use_keys(self, cohort: Cohort) -> tuple[bytes, bytes]:
        """3, 5. Take its own private keys; no prekey of the cohort is used twice."""
        run, own = cohort.turn.run, cohort.keys[self._node].number
        where = "FROM prekey WHERE run = ? AND number = ?"
        row = self._db.execute(f"SELECT seal, mask {where}", (run, own)).fetchone()
        if row is None:
            raise WireError(f"prekey {own} of client {self._node} is unknown, or was used before")
        self._db.execute(f"DELETE {where}", (run, own))
        for key in cohort.invite.cohort:
            changed = self._db.execute(
                "INSERT INTO seen VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET "
                "number = excluded.number WHERE number < excluded.number",
                (run, key.node, key.number),
            )
            if changed.rowcount != 1:
                raise WireError(f"prekey {key.number} of client {key.node} was used before")
        return row[0], row[1]

    def _shared(
        self, cohort: Cohort, b: bytes, seal: bytes, mask: bytes
    ) -> tuple[bytes, list[bytes]]:
        """5. The node's own share of b, and its boxes for the others in its group."""
        me, group = self._node, cohort.group(self._node)
        xs, t = [node + 1 for node in group], threshold(len(group))
        own, boxes = b"", []
        for peer, of_b, of_s in zip(group, split(b, t, xs), split(mask, t, xs), strict=True):
            if peer == me:
                own = of_b
                continue
            secret = masks.exchange(seal, cohort.keys[peer].seal, peer)
            boxes.append(masks.seal(secret, cohort.sealing, me, peer, of_b + of_s))
        return own, boxes

    def keep(self, turn: Turn, work: bytes, result: bytes) -> None:
        """5. Keep the result of this attempt's work until the others' shares come."""
        with self._transaction():
            sql = "INSERT OR REPLACE INTO work VALUES (?, ?, ?, ?, ?)"
            self._db.execute(sql, (*turn, work, result))

    def kept(self, turn: Turn) -> tuple[bytes, bytes]:
        """What it worked on, and the result."""
        sql = "SELECT work, result FROM work WHERE (run, round, attempt) = (?, ?, ?)"
        if (row := self._db.execute(sql, turn).fetchone()) is None:
            raise WireError(f"this node has no result of round {turn.round} to upload")
        return row[0], row[1]

    def upload(self, data: bytes, down: bytes, values: Sequence[NDArray[Any]]) -> bytes:
        """6, 7. From the boxes, what the server sent to work on, and the result: the upload."""
        message, me = self._asked(data, messages.UPLOAD), self._node
        turn, sharers, boxes = message.turn, message.nodes, message.parts
        with self._transaction():
            row, cohort = self._attempt(turn, JOINED)
            cohort.check_list(sharers, cohort.nodes, self._minimum, me)
            group = cohort.group(me)
            peers = among(group, sharers, without=me)
            if len(boxes) != len(peers) or len(peers) + 1 < threshold(len(group)):
                raise WireError(f"{len(boxes)} boxes came, of {len(peers)} sharing peers")
            b, seal, mask = (row["own"][at : at + 32] for at in (0, 32, 64))
            held = {me: row["own"][96:] + bytes(SHARE)}  # its own s is never asked for
            context = cohort.context(digest(down), sharers)
            pads = [masks.self_pad(b, context, me)]
            for peer, box in zip(peers, boxes, strict=True):
                secret = masks.exchange(seal, cohort.keys[peer].seal, peer)
                held[peer] = masks.unseal(secret, cohort.sealing, peer, me, box)
                if len(held[peer]) != 2 * SHARE:
                    raise WireError(f"the shares of client {peer} are of another length")
                secret = masks.exchange(mask, cohort.keys[peer].mask, peer)
                pads.append(masks.pair_pad(secret, context, me, peer))
            words = to_integers(values, cohort.terms)
            all_held = b"".join(held[node] for node in sorted(held))
            sets = "stage = ?, own = x'', sharers = ?, held = ?, down = ?"
            values_set = UPLOADED, ids(sharers), all_held, digest(down), turn.run
            self._db.execute(f"UPDATE attempt SET {sets} WHERE run = ?", values_set)
            self._db.execute("DELETE FROM work WHERE run = ?", (turn.run,))
        masks.apply(words, pads)
        return self._reply(turn, messages.UPLOAD, words.astype("<u4", copy=False).tobytes())

    def agree(self, data: bytes) -> bytes:
        """9. From the list of survivors to this node's signature."""
        message = self._asked(data, messages.AGREE)
        turn, survivors = message.turn, ids(message.nodes)
        with self._transaction():
            row, cohort = self._attempt(turn, UPLOADED, AGREED, OPENED)
            sharers = nodes_in(row["sharers"])
            cohort.check_list(message.nodes, sharers, self._minimum, self._node)
            if row["survivors"] not in (None, survivors):
                raise WireError(f"a second list of survivors of round {turn.round} came")
            if row["stage"] == UPLOADED:
                sql = "UPDATE attempt SET stage = ?, survivors = ? WHERE run = ?"
                self._db.execute(sql, (AGREED, survivors, turn.run))
        statement = *cohort.context(row["down"], sharers), survivors
        return self._reply(turn, messages.AGREE, self._identity.sign("survivors", *statement))

    def open(self, data: bytes) -> bytes:
        """10. From enough signatures to shares: of b of survivors, of s of other sharers."""
        message = self._asked(data, messages.OPEN)
        turn = message.turn
        with self._transaction():
            row, cohort = self._attempt(turn, AGREED, OPENED)
            sharers, survivors = nodes_in(row["sharers"]), nodes_in(row["survivors"])
            statement = *cohort.context(row["down"], sharers), row["survivors"]
            cohort.check_signed(message, survivors, statement)
            self._db.execute("UPDATE attempt SET stage = ? WHERE run = ?", (OPENED, turn.run))
        shares = []
        for k, node in enumerate(among(cohort.group(self._node), sharers)):
            of_b, of_s = (row["held"][(2 * k + kind) * SHARE :][:SHARE] for kind in (0, 1))
            shares.append(of_b if node in survivors else of_s)
        return self._reply(turn, messages.OPEN, *shares)

    def _asked(self, data: bytes, step: int) -> Request:
        message = decode(data, Request, self._roster.most)
        if message.step != step:
            raise WireError(f"a message of step {message.step} came as one of step {step}")
        return message

    def _reply(self, turn: Turn, step: int, *parts: bytes) -> bytes:
        return self._identity.signed(Reply(turn, step, self._node, parts, b""))

    def _attempt(self, turn: Turn, *stages: int) -> tuple[dict[str, Any], Cohort]:
        """What is on disk of this attempt, if it is the node's last and at one of the stages."""
        found = self._db.execute("SELECT * FROM attempt WHERE run = ?", (turn.run,))
        names = [column[0] for column in found.description]
        row = dict(zip(names, found.fetchone() or (), strict=False))
        if not row or (row["round"], row["attempt"]) != (turn.round, turn.attempt):
            raise WireError(f"this node is not in round {turn.round}, attempt {turn.attempt}")
        if row["stage"] not in stages:
            raise WireError(f"round {turn.round} is not at this step on this node, or past it")
        return row, Cohort(row["invite"], self._roster)


def nodes_in(data: bytes) -> Ids:
    return tuple(int.from_bytes(data[at : at + 8], "big") for at in range(0, len(data), 8))


def among(group: Ids, sharers: Ids, without: int = -1) -> Ids:
    """The sharers in a group, in rising order."""
    return tuple(node for node in group if node in set(sharers) and node != without)
