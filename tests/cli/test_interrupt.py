"""Ctrl-C stops a run between steps, keeps what was done, and leaves no process behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tunefree.errors import ConfigError
from tunefree.record import Record


def steps_done(path: Path) -> int:
    try:
        return len(Record.open(path).history())
    except ConfigError:
        return 0


@pytest.mark.parametrize("fleet", ["serial", "pool"])
def test_interrupt(fleet: str, tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "tunefree.cli", "run", "--fleet", fleet, "--workers", "1"),
            *("--rounds", "1000000", "--eval-every", "1000000", "--out", str(path)),
        ],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    deadline = time.monotonic() + 240
    while steps_done(path) < 3 and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert f"interrupted; what was done is kept in {path}" in err
    record = Record.open(path)
    assert record.facts()["state"] == "interrupted"
    assert len(record.history()) >= 3
