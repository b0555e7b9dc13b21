"""Backups of a folder that is being written, and what a restore refuses."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("flwr")

from tests.flower.nodes import Nodes, build_model, config, load_test
from tunefree.cli import main
from tunefree.errors import ConfigError
from tunefree.flower.backup import backup, restore
from tunefree.flower.federation import Federation
from tunefree.record import Record

WRITER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA journal_mode = WAL")
db.execute("CREATE TABLE pair (a INTEGER, b INTEGER)")
number = 0
while True:
    number += 1
    db.execute("BEGIN")
    db.execute("INSERT INTO pair VALUES (?, 0)", (number,))
    db.execute("UPDATE pair SET b = ?", (number,))
    db.execute("COMMIT")
    print(number, flush=True)
"""


@contextmanager
def written(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that writes a database all the time."""
    words = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        drain = threading.Thread(target=process.stdout.read)
        drain.start()
        try:
            yield process
        finally:
            process.kill()
            drain.join()


def test_a_database_is_copied_as_of_one_moment_while_it_is_written(tmp_path: Path) -> None:
    place = tmp_path / "server"
    place.mkdir()
    seen = []
    with written(place / "state.db"):
        for number in range(5):
            copy = tmp_path / f"copy{number}"
            assert backup(place, copy) == 1
            with closing(sqlite3.connect(copy / "state.db")) as db:
                (rows, last, least, most) = db.execute(
                    "SELECT COUNT(*), MAX(a), MIN(b), MAX(b) FROM pair"
                ).fetchone()
            assert rows == last == least == most
            seen.append(rows)
        with pytest.raises(ConfigError, match="is used by process"):
            restore(tmp_path / "copy0", place)
    assert seen == sorted(seen)
    with pytest.raises(ConfigError, match=r"state.db' is newer than the backup .*; move '"):
        restore(tmp_path / "copy0", place)
    place.rename(tmp_path / "away")
    assert restore(tmp_path / "copy0", place) == 1
    assert restore(tmp_path / "copy0", place) == 1  # the same again
    with closing(sqlite3.connect(place / "state.db")) as db:
        assert db.execute("SELECT COUNT(*) FROM pair").fetchone() == (seen[0],)
    assert (tmp_path / "copy0").stat().st_mode & 0o777 == 0o700


def test_a_restored_run_resumes_to_the_same_bits(tmp_path: Path) -> None:
    place, copy = tmp_path / "server", tmp_path / "copy"
    nodes = Nodes(place, range(3), config(place, rounds=6))

    def run() -> str:
        federation = Federation(cast("Any", nodes), nodes.run_config, build_model, load_test(None))
        training = federation.run()
        for row in training:
            if row["t"] == 2 and not copy.exists():
                training.record.settle()
                assert main(["flower", "backup", str(place), str(copy)]) == 0
        training.record.close()
        return training.theta_sha256

    whole = run()
    place.rename(tmp_path / "lost")
    assert main(["flower", "restore", str(copy), str(place)]) == 0
    with closing(Record.open(Path(nodes.run_config["out"]))) as record:
        assert record.last() is not None
        assert record.state == "interrupted"
    assert run() == whole


def test_what_is_no_backup_is_refused(tmp_path: Path) -> None:
    place, copy = tmp_path / "place", tmp_path / "copy"
    place.mkdir()
    (place / "a.json").write_text("{}")
    (place / "node.log").write_text("is not copied")
    with pytest.raises(ConfigError, match="is not a complete backup"):
        restore(place, tmp_path / "new")
    with pytest.raises(ConfigError, match="exists already"):
        backup(place, place)
    with pytest.raises(ConfigError, match="is inside"):
        backup(place, place / "copy")
    with pytest.raises(ConfigError, match="is not a folder"):
        backup(place / "a.json", copy)
    assert backup(place, copy) == 1
    (copy / "a.json").write_text("{ }")
    with pytest.raises(ConfigError, match=r"a.json' is damaged"):
        restore(copy, place)
    (copy / "a.json").write_text("{}")
    (place / "new.json").write_text("{}")
    os.utime(place / "new.json", (time.time() + 1,) * 2)
    with pytest.raises(ConfigError, match=r"new.json' is newer"):
        restore(copy, place)
