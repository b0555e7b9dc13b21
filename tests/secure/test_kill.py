"""A node that is killed before or after any statement of any step: no step is taken twice."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")

from tests.secure.federation import DOWN, RUN, Federation
from tunefree.errors import WireError
from tunefree.secure import node as nodes
from tunefree.secure.messages import Prekeys, Reply, decode
from tunefree.secure.server import Attempt

STEPS = ("join", "upload", "agree", "open")


class KilledError(BaseException):
    """The process is gone."""


class Mortal:
    """A connection whose process is killed after so many statements."""

    def __init__(self, db: sqlite3.Connection, statements: int) -> None:
        self.db, self._left = db, statements

    def execute(self, *args: Any) -> sqlite3.Cursor:
        if self._left == 0:
            raise KilledError
        self._left -= 1
        return self.db.execute(*args)


def killed(federation: Federation, i: int, statements: int, step: Callable[[], bytes]) -> bool:
    """The node after a restart; whether it had come to its answer, which is lost."""
    node, path = federation.nodes[i], federation.folder / f"{i}.sqlite"
    real = node._db
    node._db = Mortal(real, statements)  # type: ignore[assignment]
    finished = False
    try:
        step()
        finished = True
    except KilledError:
        pass
    left = federation.folder / "left"  # what is on the disk now, with the journal
    left.mkdir()
    for file in federation.folder.glob(f"{i}.sqlite*"):
        shutil.copy(file, left)
    node._db = real
    real.close()
    for file in left.iterdir():
        shutil.copy(file, path.with_name(file.name))
    shutil.rmtree(left)
    federation.nodes.pop(i)
    federation.open(i)
    return finished


def stage(federation: Federation, i: int) -> int:
    row = federation.nodes[i]._db.execute("SELECT stage FROM attempt").fetchone()
    return row[0] if row else 0


def play(federation: Federation, victim: int, at: str, statements: int) -> tuple[Attempt, bool]:
    """A round in which one node is killed at a step, resumes, and is asked again."""
    attempt, finished = federation.attempt(), False
    for number, name in enumerate(STEPS):
        requests: dict[int, bytes]
        if name == "join":
            requests = dict.fromkeys(federation.ids, attempt.invite)
        elif name == "upload":
            requests = attempt.deliver(DOWN)
        else:
            request = attempt.agree() if name == "agree" else attempt.open()
            requests = dict.fromkeys(attempt.asked, request)
        for i, data in requests.items():
            more = (DOWN, federation.values[i]) if name == "upload" else ()

            def step(i: int = i, name: str = name, data: bytes = data, more: Any = more) -> bytes:
                answer: bytes = getattr(federation.nodes[i], name)(data, *more)
                return answer

            if i == victim and name == at:
                finished = killed(federation, i, statements, step)
                recorded = stage(federation, i) == number + 1
                assert recorded >= finished, "it had an answer that is not on its disk"
                if recorded and name in ("join", "upload"):
                    before = federation.memory(i)
                    with pytest.raises(WireError):
                        step()
                    assert federation.memory(i) == before
                    continue
            attempt.receive(i, step())
    return attempt, finished


@pytest.mark.parametrize("step", STEPS)
def test_a_node_killed_at_any_statement(tmp_path: Path, step: str) -> None:
    finished, statements = False, 0
    while not finished:
        folder = tmp_path / str(statements)
        folder.mkdir()
        federation = Federation(folder, 4)
        victim = federation.ids[1]
        attempt, finished = play(federation, victim, step, statements)
        assert (attempt.integers() == federation.plain(attempt.survivors)).all()
        assert set(attempt.survivors) >= set(federation.ids) - {victim}
        statements += 1
    assert statements > 3
    assert (victim in attempt.survivors) == (step in ("agree", "open"))


def test_a_node_killed_while_it_makes_prekeys(tmp_path: Path) -> None:
    """No number is given twice, and what was given is on the disk."""
    federation = Federation(tmp_path, 3)
    i, given, finished, statements = federation.ids[0], set[int](), False, 0
    while not finished:
        finished = killed(federation, i, statements, lambda: federation.nodes[i].prekeys(RUN, 2))
        keys = decode(federation.nodes[i].prekeys(RUN, 2), Prekeys, 10**6).keys
        numbers = {key.number for key in keys}
        assert not numbers & given
        given |= numbers
        on_disk = federation.nodes[i]._db.execute("SELECT number FROM prekey").fetchall()
        assert numbers <= {number for (number,) in on_disk}
        statements += 1
    assert statements > 3


def test_prekeys_that_nobody_uses_do_not_pile_up(tmp_path: Path) -> None:
    federation = Federation(tmp_path, 3)
    node = federation.nodes[federation.ids[0]]
    for _ in range(6):
        node.prekeys(RUN, nodes.BATCH)
    (count,) = node._db.execute("SELECT count(*) FROM prekey").fetchone()
    assert count == nodes.WAITING
    for wrong in (0, nodes.BATCH + 1):
        with pytest.raises(WireError, match="batches of 1 to 256"):
            node.prekeys(RUN, wrong)
    for name in ("", "x" * 65, "ü"):
        with pytest.raises(WireError, match="a run with a short name"):
            node.prekeys(name, 1)


def test_keys_that_were_used_are_gone_from_the_disk(tmp_path: Path) -> None:
    federation = Federation(tmp_path, 3)
    attempt = federation.attempt()
    federation.join(attempt)
    i = federation.ids[0]
    own = federation.nodes[i]._db.execute("SELECT own FROM attempt").fetchone()[0]
    path = tmp_path / f"{i}.sqlite"
    kept = [own[at : at + 32] for at in (0, 32, 64)]
    assert all(secret in path.read_bytes() for secret in kept)
    federation.upload(attempt)
    assert not any(secret in path.read_bytes() for secret in kept)
    assert path.stat().st_mode & 0o777 == 0o600


def test_every_answer_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    federation = Federation(tmp_path, 3)
    db = federation.nodes[federation.ids[0]]._db
    assert db.execute("PRAGMA synchronous").fetchone() == (3,)
    assert db.execute("PRAGMA secure_delete").fetchone() == (1,)


def test_a_disk_that_cannot_be_written_gives_one_sentence(tmp_path: Path) -> None:
    from tunefree.errors import RecordError

    federation = Federation(tmp_path, 3)
    attempt = federation.attempt()
    i = federation.ids[0]
    federation.nodes[i]._db.execute("PRAGMA query_only = ON")
    before = federation.memory(i)
    with pytest.raises(RecordError, match="file for secure sums cannot be used: attempt to write"):
        federation.nodes[i].join(attempt.invite)
    assert federation.memory(i) == before
    federation.nodes[i]._db.execute("PRAGMA query_only = OFF")
    reply = decode(federation.nodes[i].join(attempt.invite), Reply, 10**6)
    assert reply.node == i
