"""The ledger: nothing leaves before it is entered, nothing twice, nothing beyond the budget."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tunefree.errors import ConfigError
from tunefree.privacy.accountant import Gaussian, epsilon, sigma_for
from tunefree.privacy.ledger import Ledger

DELTA = 1e-5
FIVE = Gaussian(sigma_for(2.0, DELTA, 5))  # five of these cost epsilon 2


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "ledger.sqlite", 2.0, DELTA)


def test_it_stops_at_the_budget(ledger: Ledger) -> None:
    for t in range(5):
        assert ledger.allows(FIVE)
        ledger.once(f"round {t}", FIVE, lambda: b"sum")
    assert ledger.spent() == pytest.approx(2.0)
    assert not ledger.allows(FIVE)
    with pytest.raises(ConfigError, match=r"round 5 would need epsilon = 2.2\d, and the budget is"):
        ledger.once("round 5", FIVE, lambda: b"sum")
    assert ledger.spent() == pytest.approx(2.0)
    assert ledger.once("round 4", FIVE, lambda: b"another") == b"sum"  # paid for


def test_what_is_repeated_is_the_same_and_free(ledger: Ledger) -> None:
    values = iter([b"first", b"second"])
    assert ledger.once("round 0", FIVE, lambda: next(values)) == b"first"
    assert ledger.once("round 0", FIVE, lambda: next(values)) == b"first"
    assert ledger.spent() == epsilon({FIVE: 1}, DELTA)


def test_it_survives_its_process(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger.open(path, 2.0, DELTA).once("round 0", FIVE, lambda: b"sum")
    again = Ledger.open(path, 2.0, DELTA)
    assert again.once("round 0", FIVE, lambda: b"another") == b"sum"
    assert again.spent() == epsilon({FIVE: 1}, DELTA)


def test_only_the_last_value_is_kept(ledger: Ledger) -> None:
    ledger.once("round 0", FIVE, lambda: b"zero")
    ledger.once("round 1", FIVE, lambda: b"one")
    with pytest.raises(ConfigError, match="round 0 was released before, and later ones"):
        ledger.once("round 0", FIVE, lambda: b"another")
    assert ledger.once("round 1", FIVE, lambda: b"another") == b"one"


def test_what_fails_costs_nothing(ledger: Ledger) -> None:
    def fails() -> bytes:
        raise OSError("no entropy")

    with pytest.raises(OSError, match="no entropy"):
        ledger.once("round 0", FIVE, fails)
    assert ledger.spent() == 0
    assert ledger.once("round 0", FIVE, lambda: b"sum") == b"sum"


def test_each_client_has_its_own_account(ledger: Ledger) -> None:
    for t in range(5):
        ledger.once(f"round {t}", FIVE, lambda: b"", clients=[0, 1])
    ledger.once("round 5", FIVE, lambda: b"", clients=[1 + 1, 3])
    assert ledger.spent() == pytest.approx(2.0)
    assert ledger.left(range(5), FIVE) == {0: 0, 1: 0, 2: 4, 3: 4, 4: 5}
    with pytest.raises(ConfigError, match="budget"):
        ledger.once("round 6", FIVE, lambda: b"", clients=[0, 4])
    ledger.once("round 6", FIVE, lambda: b"", clients=[])  # noise about nobody
    assert ledger.spent() == pytest.approx(2.0)


def test_one_entry_may_be_many_releases(ledger: Ledger) -> None:
    assert ledger.allows(FIVE, times=5)
    assert not ledger.allows(FIVE, times=6)
    ledger.once("job 0", FIVE, lambda: b"", times=4)
    assert ledger.spent() == pytest.approx(epsilon({FIVE: 4}, DELTA))
    ledger.once("job 1", FIVE, lambda: b"", clients=[7])
    assert ledger.spent() == pytest.approx(2.0)


def test_a_larger_budget_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger.open(path, 2.0, DELTA).once("round 0", FIVE, lambda: b"", times=5)
    assert not Ledger.open(path, 2.0, DELTA).allows(FIVE)
    assert Ledger.open(path, 3.0, DELTA).allows(FIVE)


KILLED = """
import os, signal, sys
from pathlib import Path
from tunefree.privacy.accountant import Gaussian
from tunefree.privacy.ledger import Ledger

path, where, at = sys.argv[1:]
ledger = Ledger.open(Path(path), 2.0, 1e-5)

def drawn(t):
    if where == "before" and t == int(at):
        os.kill(os.getpid(), signal.SIGKILL)
    return os.urandom(8)

for t in range(int(at), 5):
    value = ledger.once(f"round {t}", Gaussian(float(SIGMA)), lambda: drawn(t))
    if where == "after" and t == int(at) + 1:
        os.kill(os.getpid(), signal.SIGKILL)
    print(t, value.hex(), flush=True)
"""


def killed(path: Path, where: str, at: int) -> list[str]:
    program = KILLED.replace("SIGMA", str(FIVE.sigma))
    ended = subprocess.run(
        [sys.executable, "-c", program, str(path), where, str(at)], capture_output=True, text=True
    )
    assert ended.returncode == (-signal.SIGKILL if where != "never" else 0), ended.stderr
    return ended.stdout.splitlines()


def test_kill_9_spends_and_releases_nothing_twice(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    (first,) = killed(path, "after", at=0)  # round 1 was entered, but did not leave
    with sqlite3.connect(path) as db:
        rows = db.execute("SELECT key, value FROM released ORDER BY key").fetchall()
    assert [key for key, _ in rows] == ["round 0", "round 1"]
    assert killed(path, "before", at=2) == []  # round 2 was not entered
    last = killed(path, "never", at=1)
    assert last[0] == f"1 {rows[1][1].hex()}"  # the value from before
    assert first.startswith("0 ")
    assert [line[0] for line in last] == ["1", "2", "3", "4"]
    assert Ledger.open(path, 2.0, DELTA).spent() == pytest.approx(2.0)
