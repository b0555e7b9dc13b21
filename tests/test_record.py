"""A run file keeps what was committed, whole steps only, and tells when it is damaged."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from tunefree.errors import ConfigError
from tunefree.record import Record


def commit(record: Record, t: int, value: float) -> None:
    record.commit(
        t,
        replies=[(3, 0), (7, 2 * (t + 1))],
        drawn=10,
        seconds=0.5,
        time=t + 3.0,
        scores={"loss": value},
        traffic=[(0, "down", 2, 64, 64), (0, "up", 2, 32, 20)],
        states={-1: {"theta": np.full(3, value, np.float32)}, 7: {"c_i": np.full(3, -value)}},
    )


def test_history_is_cumulative_and_vectors_are_the_last(tmp_path: Path) -> None:
    record = Record.create(tmp_path / "run.sqlite", {"state": "running"})
    commit(record, -1, 3.0)
    commit(record, 0, 2.0)
    reader = Record.open(tmp_path / "run.sqlite")  # while it is still open for writing
    first, second = reader.history()
    assert first == {
        **{"t": -1, "drawn": 10, "seconds": 0.5, "time": 2.0},
        **{"clients": 2, "tau_mean": 0.0, "tau_max": 0},
        **{"bits_up": 32, "bits_down": 64, "value_bits_up": 20, "value_bits_down": 64},
        "loss": 3.0,
    }
    assert second == {
        **{"t": 0, "drawn": 20, "seconds": 1.0, "time": 3.0},
        **{"clients": 2, "tau_mean": 1.0, "tau_max": 2},
        **{"bits_up": 64, "bits_down": 128, "value_bits_up": 40, "value_bits_down": 128},
        "loss": 2.0,
    }
    assert reader.facts() == {"state": "running"}
    assert reader.uploads() == {3: 1, 7: 1}
    assert reader.staleness() == {0: 1, 2: 1}
    theta, c_7 = reader.vectors()["theta"], reader.vectors(7)["c_i"]
    assert theta.dtype == np.float32
    assert theta.tolist() == [2, 2, 2]
    assert c_7.dtype == np.float64
    assert c_7.tolist() == [-2, -2, -2]


def test_a_step_is_committed_whole_or_not_at_all(tmp_path: Path) -> None:
    record = Record.create(tmp_path / "run.sqlite", {})
    commit(record, 0, 1.0)
    with pytest.raises(sqlite3.IntegrityError):
        record.commit(
            1,
            replies=[(1, 0)],
            drawn=1,
            seconds=0,
            time=0,
            scores={"loss": float("nan")},
            traffic=[],
            states={},
        )
    assert [row["t"] for row in record.history()] == [0]
    commit(record, 1, 2.0)
    assert [row["t"] for row in record.history()] == [0, 1]


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    with pytest.raises(ConfigError, match="exists already and is left as it is"):
        Record.create(tmp_path / "precious", {})
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_damaged_vector_is_noticed(tmp_path: Path) -> None:
    record = Record.create(tmp_path / "run.sqlite", {})
    commit(record, 0, 1.0)
    record.close()
    db = sqlite3.connect(tmp_path / "run.sqlite")
    db.execute("UPDATE vector SET data = zeroblob(12) WHERE field = 'theta'")
    db.commit()
    db.close()
    with pytest.raises(ConfigError, match="'theta' of the run file is damaged"):
        Record.open(tmp_path / "run.sqlite").vectors()


def test_what_is_no_run_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no run file"):
        Record.open(tmp_path / "absent")
    (tmp_path / "text").write_text("hello, this is not a data base" * 100)
    with pytest.raises(ConfigError, match="is not a run file"):
        Record.open(tmp_path / "text")
    sqlite3.connect(tmp_path / "old").execute("PRAGMA user_version = 99").connection.close()
    with pytest.raises(ConfigError, match="has layout version 99"):
        Record.open(tmp_path / "old")
