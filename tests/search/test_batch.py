"""A batch does each run once, bit-identical to a single run, and survives processes that die."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.search.small import FLAGS, run_here, settings, theta_sha256
from tunefree.errors import ConfigError
from tunefree.record import Facts, Record
from tunefree.run.progress import BatchProgress
from tunefree.run.run import prepare
from tunefree.search import batch
from tunefree.search.batch import Event, PlannedRun, Progress, Result, plan, run_all


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    """Two good runs and one that diverges, from a real worker process."""
    folder = tmp_path_factory.mktemp("batch") / "new"
    configs = {
        "first": settings(seed=3),
        "second": settings("comparfrefl", compressor="top:0.1", model_option__hidden=5),
        "bad": settings("fedavg", option__eta=1e30),
    }
    return run_all(
        [
            plan(folder, label, c, "method", {"sweep": {"over": "eta"}})
            for label, c in configs.items()
        ],
        1,
    )


def test_results_come_in_the_order_asked_for(results: list[Result]) -> None:
    assert [r.run.label for r in results] == ["first", "second", "bad"]
    assert [r.state for r in results] == ["done", "done", "diverged"]
    assert [len(r.history) for r in results] == [9, 9, 3]
    assert "training has diverged" in results[2].reason


def test_bit_identical_to_a_single_run(results: list[Result], tmp_path: Path) -> None:
    for result in results[:2]:
        alone = prepare(plan(tmp_path, "alone", result.run.settings).settings)
        for _ in alone:
            pass
        assert theta_sha256(result.run.path) == alone.theta_sha256
        accuracies = [[row.get("accuracy") for row in rows] for rows in (alone.history, result[2])]
        assert accuracies[0] == accuracies[1]


def test_the_run_file_says_what_it_is(results: list[Result]) -> None:
    record = Record.open(results[1].run.path)
    facts = record.facts()
    assert (facts.label, facts.role, facts.state, facts.fleet) == (
        "second",
        "method",
        "done",
        "serial",
    )
    assert facts.sweep == {"over": "eta"}
    assert facts.settings["model_option"] == {"hidden": 5}
    assert facts.settings["compressor"] == "top:0.1"


def test_a_finished_run_is_not_run_again(
    results: list[Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_worker(*_: object) -> None:
        raise AssertionError("there is nothing to do")

    monkeypatch.setattr(batch, "new_worker", no_worker)
    before = [r.run.path.stat().st_mtime_ns for r in results]
    assert run_all([r.run for r in results]) == results
    assert [r.run.path.stat().st_mtime_ns for r in results] == before


CHANGES: list[Mapping[str, object]] = [
    {},
    {"rounds": 9},
    {"seed": 1},
    {"option__eta": 0.1},
    {"option__eta": 0.2},
    {"model_option__hidden": 3},
    {"partition": "iid"},
    {"validation": 0.1},
    {"opening": "zero"},
    {"grad_norm": True},
]


@given(st.sampled_from(CHANGES), st.sampled_from(CHANGES))
def test_runs_share_a_file_only_if_all_settings_agree(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    paths = {plan(Path("a"), "method", settings("fedavg", **each)).path for each in (one, other)}
    assert len(paths) == (1 if one == other else 2)


def test_where_clients_run_does_not_make_another_run() -> None:
    one = plan(Path("a"), "method", settings(fleet="pool", workers=3, out="b"))
    assert one == plan(Path("a"), "method", settings())
    assert one.path != plan(Path("a"), "method", settings(), floors={3: 0.5}).path


def test_a_file_with_another_run_is_refused(tmp_path: Path) -> None:
    run = plan(tmp_path, "method", settings())
    Record.create(run.path, Facts(plan="other", state="done")).close()
    with pytest.raises(ConfigError, match="contains another run; choose another folder"):
        run_all([run])


def test_the_same_run_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is planned 2 times; remove the repeats"):
        run_all([plan(tmp_path, "method", settings())] * 2)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--out '.*file' cannot be written"):
        run_all([plan(tmp_path / "file", "method", settings())])


def test_a_run_stops_below_its_floor(tmp_path: Path) -> None:
    whole, *_ = run_here([plan(tmp_path, "whole", settings())])
    floors = {int(row["t"]): row["accuracy"] for row in whole.scores if row["t"] >= 3}
    (same,) = run_here([plan(tmp_path, "same", settings(), floors=floors)])
    assert same.state == "done"
    floors[5] += 1e-6
    (pruned,) = run_here([plan(tmp_path, "pruned", settings(), floors=floors)])
    assert (pruned.state, pruned.history[-1]["t"]) == ("pruned", 5)
    assert "at round 6 is below" in pruned.reason


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "WORKER", "tests.search.scripted_worker")


def labelled(folder: Path, *labels: str) -> list[PlannedRun]:
    return [plan(folder, label, settings(seed=i)) for i, label in enumerate(labels)]


@pytest.mark.usefixtures("scripted")
def test_a_dead_process_is_replaced_and_its_run_tried_once_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = labelled(tmp_path, "deadly", "deadly once", "broken", "failed", "good", "also good")
    results = run_all(runs, workers=2)
    assert [r.state for r in results] == ["failed", "done", "failed", "failed", "done", "done"]
    tries = [len(run.path.with_suffix(".tries").read_text()) for run in runs]
    assert tries == [2, 2, 2, 1, 1, 1]
    assert results[0].reason == (
        "its process died 2 times, last by signal 9, perhaps out of memory"
    )
    assert results[2].reason == "its process died 2 times, last with exit code 1"
    assert results[3].reason == "failed because"
    err = capsys.readouterr().err
    assert err.count("note: beta is 1\n") == 1
    assert "deadly, seed 0: failed: its process died 2 times" in err
    assert "6/6 " in err


@pytest.mark.usefixtures("scripted")
def test_a_refused_setting_ends_the_batch(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="seed = 1 refused because"):
        run_all(labelled(tmp_path, "good", "refused", "good too"), workers=1)


@pytest.mark.usefixtures("scripted")
def test_no_process_is_left_when_the_batch_is_closed(tmp_path: Path) -> None:
    events = batch.events(labelled(tmp_path, "sleepy", "sleepy too"), workers=1)
    first = next(events)
    assert isinstance(first, Progress)
    assert first.run.label == "sleepy"
    start = time.monotonic()
    events.close()
    assert time.monotonic() - start < 30  # it would sleep for a minute


def test_one_command_at_a_time_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = plan(tmp_path, "method", settings())
    Record.create(run.path, Facts.read({**run.facts, "state": "done"})).close()
    lock = FileLock(tmp_path / ".lock")
    lock.acquire()
    events = batch.events([run])
    assert "another command is using" in str(next(events))
    lock.release()
    assert [event.state for event in events if isinstance(event, Result)] == ["done"]


def test_it_waits_for_the_workers_of_a_killed_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = plan(tmp_path, "method", settings())
    locked, pauses = iter([True, True, False]), list[float]()
    monkeypatch.setattr(batch, "is_locked", lambda _: next(locked))
    monkeypatch.setattr(time, "sleep", pauses.append)
    batch.wait_for_leftovers([run])
    assert len(pauses) == 2
    monkeypatch.setattr(batch, "is_locked", lambda _: True)
    monkeypatch.setattr(batch, "SECONDS_TO_END", -1)
    batch.wait_for_leftovers([run])  # but not for ever
    assert len(pauses) == 2


def test_lines_for_a_log_and_bars_for_a_terminal(results: list[Result]) -> None:
    first, _, bad = (r.run for r in results)

    def events() -> Iterator[Event]:
        yield Progress(first, {"t": 3, "seconds": 0.1, "accuracy": 0.5})
        yield "a note"
        yield results[0]
        yield "a note"
        yield Progress(bad, {"t": -1, "seconds": 0.1})
        yield results[2]

    for terminal in (False, True):
        console = Console(file=StringIO(), width=100, force_terminal=terminal)
        with BatchProgress(2, 16, console) as progress:
            for event in events():
                batch.show(event, progress)
        out = console.file.getvalue()  # type: ignore[attr-defined]
        assert out.count("note: a note") == 1
        if terminal:
            assert "2 of 2 runs" in out
        else:
            assert "1/2 first, seed 3: accuracy 0." in out
            assert "2/2 bad, seed 0: diverged after 2 of 8 rounds\n" in out


def command(folder: Path, rounds: int) -> list[str]:
    return [
        *("compare", "padamfed", "fedavg", *FLAGS, "--rounds", str(rounds), "--eval-every", "5"),
        *("--workers", "1", "--seeds", "0", "1", "--out", str(folder)),
    ]


def states(folder: Path) -> dict[Path, str]:
    found = {}
    for path in sorted(folder.glob("*.sqlite")):
        try:
            record = Record.open(path)
        except ConfigError:
            continue  # it is just being made
        found[path] = record.facts().state
        record.close()
    return found


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_killed_command_resumes_where_it_was(how: signal.Signals, tmp_path: Path) -> None:
    rounds = 60
    process = subprocess.Popen(
        [sys.executable, "-m", "tunefree.cli", *command(tmp_path / "cut", rounds)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 240
    while not ({"done", "running"} <= set(states(tmp_path / "cut").values())):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(how)
    _, err = process.communicate(timeout=120)
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert "the same command resumes it" in err
    before = states(tmp_path / "cut")
    assert set(before.values()) > {"done"}
    finished = {p: p.stat().st_mtime_ns for p, state in before.items() if state == "done"}

    from tunefree.cli import main

    assert main(command(tmp_path / "cut", rounds)) == 0
    after = states(tmp_path / "cut")
    assert list(after.values()) == ["done"] * 4
    assert {p: p.stat().st_mtime_ns for p in finished} == finished
    whole = run_here(
        [
            plan(tmp_path, name, settings(name, rounds=rounds, eval_every=5, seed=s))
            for name in ("padamfed", "fedavg")
            for s in (0, 1)
        ]
    )
    assert sorted(map(theta_sha256, after)) == sorted(theta_sha256(r.run.path) for r in whole)


@pytest.mark.parametrize("how", ["empty", "no tables", "no facts"])
def test_a_file_that_was_never_written_is_removed(how: str, tmp_path: Path) -> None:
    run = plan(tmp_path, "method", settings())
    if how == "empty":
        run.path.touch()
    elif how == "no tables":
        sqlite3.connect(run.path).execute("PRAGMA journal_mode = WAL").connection.close()
    else:
        Record.create(run.path, Facts()).close()
        with sqlite3.connect(run.path) as db:
            db.execute("DELETE FROM run")
        db.close()
    assert batch.saved_result(run) is None
    assert not run.path.exists()


def test_a_file_that_is_not_a_run_file_is_not_touched(tmp_path: Path) -> None:
    run = plan(tmp_path, "method", settings())
    run.path.write_text("my notes\n" * 100)
    with pytest.raises(ConfigError, match="is not a run file"):
        run_all([run])
    assert run.path.read_text().startswith("my notes")
