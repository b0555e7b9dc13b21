"""A run file has what was committed, whole steps only, and damage is noticed."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunefree.errors import ConfigError
from tunefree.record import Facts, Line, Record, Row, Rows


def line(t: int, value: float) -> Line:
    return Line(
        t,
        samples=10,
        seconds=0.5,
        virtual_seconds=t + 3.0,
        replies=[(3, 0), (7, 2 * (t + 1))],
        scores={"loss": value},
        traffic=[(0, "down", 2, 64, 64), (0, "up", 2, 32, 20)],
        absent=[(0, 5, "too long")] if t > 0 else [],
    )


def commit(record: Record, t: int, value: float) -> None:
    theta, c_7 = np.full(3, value, np.float32), np.full(3, -value)
    record.commit([line(t, value)], {-1: {"theta": theta}, 7: {"c_i": c_7}})


def test_history_is_cumulative_and_vectors_are_the_last(tmp_path: Path) -> None:
    record = Record.create(tmp_path / "run.sqlite", Facts(state="running"))
    commit(record, -1, 3.0)
    commit(record, 0, 2.0)
    record.settle()
    reader = Record.open(tmp_path / "run.sqlite")  # while it is still open for writing
    first, second = reader.history()
    assert first == {
        "round": 0,
        "t": -1,
        "samples": 10,
        "seconds": 0.5,
        "virtual_seconds": 2.0,
        "clients": 2,
        "absent": 0,
        "tau_mean": 0.0,
        "tau_max": 0,
        "bits_up": 32,
        "bits_down": 64,
        "value_bits_up": 20,
        "value_bits_down": 64,
        "loss": 3.0,
    }
    assert second == {
        "round": 1,
        "t": 0,
        "samples": 20,
        "seconds": 1.0,
        "virtual_seconds": 3.0,
        "clients": 2,
        "absent": 0,
        "tau_mean": 1.0,
        "tau_max": 2,
        "bits_up": 64,
        "bits_down": 128,
        "value_bits_up": 40,
        "value_bits_down": 128,
        "loss": 2.0,
    }
    assert reader.facts().state == "running"
    assert reader.uploads() == {3: 1, 7: 1}
    assert reader.staleness() == {0: 1, 2: 1}
    theta, c_7 = reader.vectors()["theta"], reader.vectors(7)["c_i"]
    assert theta.dtype == np.float32
    assert theta.tolist() == [2, 2, 2]
    assert c_7.dtype == np.float64
    assert c_7.tolist() == [-2, -2, -2]


LINES = [
    Line(-1, 40, 0.1, 0.0, [(c, 0) for c in range(5)], {"loss": 2.0}, [(0, "up", 5, 50, 40)], []),
    Line(0, 10, 0.2, 1.5, [], {}, [(0, "down", 2, 64, 64)], [(0, 1, "late"), (0, 2, "lost")]),
    Line(
        1,
        12,
        0.3,
        2.5,
        [(1, 0), (2, 1), (4, 4)],
        {"loss": 1.0, "accuracy": 0.5},
        [(0, "down", 3, 96, 96), (0, "up", 3, 30, 20), (1, "down", 3, 9, 9), (1, "up", 2, 7, 7)],
        [(1, 4, "late")],
    ),
    Line(2, 0, 0.7, 2.5, [(3, 2)], {}, [], []),
]


@pytest.mark.parametrize("resumed_at", range(len(LINES)))
def test_a_row_is_the_same_at_once_as_in_the_history(resumed_at: int) -> None:
    record = Record.create(None, Facts())
    record.commit(LINES[:resumed_at], {})
    told: list[Row] = record.history()
    rows = Rows(told[-1] if told else None)
    told += [rows.add(line) for line in LINES[resumed_at:]]
    record.commit(LINES[resumed_at:], {})
    history = record.history()
    assert told == history
    assert history[2] == {
        "round": 2,
        "t": 1,
        "samples": 62,
        "seconds": pytest.approx(0.6),
        "virtual_seconds": 2.5,
        "clients": 3,
        "absent": 1,
        "tau_mean": 5 / 3,
        "tau_max": 4,
        "bits_up": 87,
        "bits_down": 169,
        "value_bits_up": 67,
        "value_bits_down": 169,
        "loss": 1.0,
        "accuracy": 0.5,
    }


def test_only_known_facts_are_noted(tmp_path: Path) -> None:
    record = Record.create(tmp_path / "run.sqlite", Facts(title="Mine", parameters=3))
    record.note(state="done", label_counts=[[1, 2]])
    with pytest.raises(TypeError, match="stat"):
        record.note(stat="done")
    facts = record.facts()
    assert (facts.title, facts.parameters, facts.state) == ("Mine", 3, "done")
    assert facts.as_dict().keys() >= {"title", "parameters", "state", "label_counts", "writer"}
    assert "paper" not in facts.as_dict()
    record.note(state="unknown")  # what is noted is written, also where it is the default
    assert record.facts().state == "unknown"


def test_a_step_is_committed_whole_or_not_at_all(tmp_path: Path) -> None:
    record = Record.create(tmp_path / "run.sqlite", Facts())
    commit(record, 0, 1.0)
    record.commit([line(1, 2.0), line(2, float("nan"))], {-1: {"theta": np.ones(3)}})
    with pytest.raises(sqlite3.IntegrityError):
        record.settle()
    assert record.vectors()["theta"].dtype == np.float32
    assert [row["t"] for row in record.history()] == [0]
    commit(record, 1, 2.0)
    assert [row["t"] for row in record.history()] == [0, 1]
    assert record.absences() == [(1, 0, 5, "too long")]


def test_reading_waits_for_what_was_committed(tmp_path: Path) -> None:
    record = Record.create(tmp_path / "run.sqlite", Facts())
    for t in range(20):
        theta = np.full(200_000, t, np.float32)
        record.commit([line(t, 1.0)], {-1: {"theta": theta}})
        assert record.vectors()["theta"][-1] == t
        record.commit([line(t + 100, 1.0)], {7: {"c": theta}})
        assert record.last() == (t + 100, t + 103.0)


def test_commits_take_a_twentieth_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("tunefree.record.file.time.perf_counter", lambda: clock[0])
    record = Record.create(tmp_path / "run.sqlite", Facts())
    assert record.costs_little()
    slow = record._store.put

    def put(*given: Any) -> None:
        slow(*given)
        clock[0] = 0.1  # seconds that a commit takes

    monkeypatch.setattr(record._store, "put", put)
    commit(record, -1, 3.0)
    record.settle()
    for now, due in ((0.1, False), (1.9, False), (2.1, True)):
        clock[0] = now
        assert record.costs_little() == due


def test_the_log_contains_a_few_commits_but_never_grows_without_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunefree.record.file.MOST_LOG", 1_500)
    record = Record.create(tmp_path / "run.sqlite", Facts())

    def pages_after(t: int, numbers: int) -> int:
        record.commit([line(t, 1.0)], {-1: {"theta": np.zeros(numbers, np.float32)}})
        (pages,) = record.connection.execute("PRAGMA wal_autocheckpoint").fetchone()
        return int(pages)

    assert [pages_after(0, 10), pages_after(1, 1_200_000)] == [1_000, 4 * 4_800_000 // 16_384]
    assert [pages_after(2, 5_000_000), pages_after(3, 10)] == [1_500, 1_500]


def test_a_history_is_of_one_moment(tmp_path: Path) -> None:
    writer = Record.create(tmp_path / "run.sqlite", Facts())
    commit(writer, 0, 1.0)
    writer.settle()
    reader = Record.open(tmp_path / "run.sqlite")

    def meanwhile(query: str) -> None:
        if "FROM traffic" in query:
            commit(writer, 1, 2.0)
            writer.settle()

    reader.connection.set_trace_callback(meanwhile)
    assert [row["t"] for row in reader.history()] == [0]
    reader.connection.set_trace_callback(None)
    assert [row["t"] for row in reader.history()] == [0, 1]


def test_downloads_are_stored_while_in_flight(tmp_path: Path) -> None:
    record = Record.create(tmp_path / "run.sqlite", Facts())
    record.commit([line(0, 1.0)], {}, in_flight={0}, new={0: b"zero"})
    record.commit([line(1, 1.0), line(2, 1.0)], {}, in_flight={0, 2}, new={2: b"two"})
    assert record.in_flight() == {0: b"zero", 2: b"two"}
    record.commit([line(3, 1.0)], {}, in_flight={2})
    assert record.in_flight() == {2: b"two"}
    assert record.last() == (3, 6.0)


def test_one_process_writes_and_the_second_learns_which(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    record = Record.create(path, Facts(state="running"))
    assert Record.open(path).state == "running"
    with pytest.raises(ConfigError, match=f"is being written by process {os.getpid()} on"):
        Record.resume(path)
    record.release()
    assert Record.open(path).state == "interrupted"  # no process is writing it
    Record.resume(path).close()


def test_a_folder_that_cannot_be_written_is_not_called_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.sqlite"
    Record.create(path, Facts(state="running")).close()

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tunefree.record.file.FileLock.acquire", denied)
    with pytest.raises(ConfigError, match=r"run.sqlite' cannot be written \(.*Permission denied\)"):
        Record.resume(path)


def test_a_finished_run_is_one_file(tmp_path: Path) -> None:
    record = Record.create(tmp_path / "run.sqlite", Facts(state="running"))
    commit(record, 0, 1.0)
    assert len(list(tmp_path.iterdir())) > 1  # while it is being written
    record.release()
    assert record.history() == Record.open(tmp_path / "run.sqlite").history()
    assert [file.name for file in tmp_path.iterdir()] == ["run.sqlite"]


WRITER = """
import sys, time
from pathlib import Path
from tunefree.record import Facts, Record
record = Record.create(Path(sys.argv[1]), Facts(state="running"))
print("writing", flush=True)
time.sleep(60)
"""


def test_a_killed_writer_holds_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        with pytest.raises(ConfigError, match=f"is being written by process {process.pid} on"):
            Record.resume(path)
        process.kill()
    record = Record.resume(path)
    commit(record, 0, 1.0)
    record.close()


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    with pytest.raises(ConfigError, match="exists already and is not overwritten"):
        Record.create(tmp_path / "precious", Facts())
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_damaged_vector_is_noticed(tmp_path: Path) -> None:
    record = Record.create(tmp_path / "run.sqlite", Facts())
    commit(record, 0, 1.0)
    record.close()
    db = sqlite3.connect(tmp_path / "run.sqlite")
    db.execute("UPDATE vector SET data = zeroblob(12) WHERE field = 'theta'")
    db.commit()
    db.close()
    with pytest.raises(ConfigError, match="'theta' in '.*run.sqlite' is damaged"):
        Record.open(tmp_path / "run.sqlite").vectors()


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no run file"):
        Record.open(tmp_path / "absent")
    (tmp_path / "text").write_text("hello, this is not a data base" * 100)
    with pytest.raises(ConfigError, match="is not a run file"):
        Record.open(tmp_path / "text")
    sqlite3.connect(tmp_path / "other").execute("CREATE TABLE mine (x)").connection.close()
    with pytest.raises(ConfigError, match="is not a run file \\(it has no steps table"):
        Record.open(tmp_path / "other")
    Record.create(tmp_path / "new", Facts()).close()
    for version, which in ((1, "an older"), (99, "a newer")):
        with closing(sqlite3.connect(tmp_path / "new")) as db:
            db.execute(f"PRAGMA user_version = {version}")
        with pytest.raises(ConfigError, match=f"version {version}, .* with {which} tunefree"):
            Record.open(tmp_path / "new")
