"""Killed, interrupted, out of disk: done to a real process, and nothing is lost."""

from __future__ import annotations

import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tunefree.cli import main
from tunefree.errors import ConfigError
from tunefree.record import Record

SMALL = (
    *("--clients", "20", "--per-round", "4", "--local-steps", "2", "--rounds", "60"),
    *("--eval-every", "20", "--model", "logistic", "--commit-every", "1"),
)
SCHEDULES: dict[str, tuple[str, ...]] = {
    "synchronous": (),
    "buffered": ("--schedule", "buffered", "--concurrency", "9", "--dropout", "0.2"),
}


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "tunefree.cli", "run", *words]


def start(*words: str, before: Callable[[], None] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=before,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def finish(*words: str) -> None:
    """In this process: only those that are killed need one of their own."""
    assert main(["run", *words]) == 0


def theta(path: Path) -> bytes:
    return Record.open(path).vectors()["theta"].tobytes()


def steps_done(path: Path) -> int:
    try:
        last = Record.open(path).last()
    except (ConfigError, sqlite3.OperationalError):
        return 0
    return 0 if last is None else last[0] + 2


def wait_for_step(process: subprocess.Popen[str], path: Path, step: int) -> None:
    deadline = time.monotonic() + 240
    while steps_done(path) < step and time.monotonic() < deadline:
        if process.poll() is not None:
            return
        time.sleep(0.002)


def killed_again_and_again(
    path: Path, words: tuple[str, ...], kills: int, rng: random.Random
) -> int:
    """Start, kill after a few steps at any moment, resume; returns the number of kills that hit."""
    hits = 0
    for _ in range(kills):
        go_on = ("--resume", str(path)) if steps_done(path) else (*words, "--out", str(path))
        process = start(*go_on)
        wait_for_step(process, path, steps_done(path) + rng.randint(1, 3))
        time.sleep(rng.uniform(0, 0.02))
        process.kill()
        process.communicate(timeout=60)
        hits += process.returncode == -signal.SIGKILL
        check_integrity(path)
    finish("--resume", str(path))
    return hits


def check_integrity(path: Path) -> None:
    """The file opens, its pages are sound, and it contains whole steps only."""
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()
    record = Record.open(path)
    assert record.state == "interrupted"
    assert [row["t"] for row in record.history()] == list(range(-1, steps_done(path) - 1))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_killed_at_any_moment(schedule: str, tmp_path: Path) -> None:
    words = (*SMALL, *SCHEDULES[schedule], "--fleet", "serial")
    finish(*words, "--out", str(tmp_path / "whole.sqlite"))
    path = tmp_path / "killed.sqlite"
    assert killed_again_and_again(path, words, kills=2, rng=random.Random(schedule)) == 2
    assert theta(path) == theta(tmp_path / "whole.sqlite")


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("fleet", ["serial", "pool"])
@pytest.mark.parametrize("name", ["padamfed", "comparfrefl", "adamasfl", "feddyn"])
def test_killed_many_times(schedule: str, fleet: str, name: str, tmp_path: Path) -> None:
    """Five kills in each of 16 settings: 80 in all."""
    words = (*SMALL, *SCHEDULES[schedule], "--fleet", fleet, "--algorithm", name)
    finish(*words, "--workers", "1", "--out", str(tmp_path / "whole.sqlite"))
    path = tmp_path / "killed.sqlite"
    rng = random.Random(f"{schedule} {fleet} {name}")
    assert killed_again_and_again(path, (*words, "--workers", "1"), kills=5, rng=rng) == 5
    assert theta(path) == theta(tmp_path / "whole.sqlite")


def test_a_full_disk_is_one_error_and_the_run_resumes_later(tmp_path: Path) -> None:
    words = (*SMALL, "--fleet", "serial")
    finish(*words, "--out", str(tmp_path / "whole.sqlite"))
    path = tmp_path / "full.sqlite"
    half = 1_200_000

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (half, half))

    process = start(*words, "--out", str(path), before=small_disk)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1
    (sentence,) = [line for line in err.splitlines() if not line.startswith("round")]
    assert sentence.startswith(f"tunefree: '{path}' can no longer be written (")
    assert sentence.endswith(f"is still in it; resume with: tunefree run --resume {path}")
    check_integrity(path)
    assert 0 < steps_done(path) < 61
    finish("--resume", str(path))
    assert theta(path) == theta(tmp_path / "whole.sqlite")


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_signal_stops_it_after_its_step_with_advice(number: int, tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    process = start("--rounds", "100000", "--commit-every", "7", "--out", str(path))
    wait_for_step(process, path, 2)
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "stopping after this round; once more to stop at once" in err
    assert f"resume with: tunefree run --resume {path}" in err
    assert Record.open(path).state == "interrupted"
    process = start("--resume", str(path))
    wait_for_step(process, path, steps_done(path) + 1)
    assert process.poll() is None
    process.send_signal(number)
    process.communicate(timeout=120)


SLOW = """
import time, torch
def build():
    class Slow(torch.nn.Linear):
        def forward(self, x):
            time.sleep(0.2)
            return super().forward(x.flatten(1))
    return Slow(64, 10)
"""


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    (tmp_path / "slow_model.py").write_text(SLOW)
    path = tmp_path / "run.sqlite"
    os.environ["PYTHONPATH"] = str(tmp_path)
    try:
        process = start(
            *("--model", "slow_model:build", "--local-steps", "100000", "--opening", "zero"),
            *("--clients", "2", "--fleet", "serial", "--out", str(path)),
        )
    finally:
        del os.environ["PYTHONPATH"]
    wait_for_step(process, path, 1)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None  # it waits for the end of a very long step
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"resume with: tunefree run --resume {path}" in err
