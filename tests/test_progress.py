"""One run's progress: bars with a speed on a terminal, a line per evaluation elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from tunefree import progress
from tunefree.core import System
from tunefree.record import Row


class Rows:
    """A run that has happened already."""

    algo = SimpleNamespace(sys=System(4, 2, 1, 4))

    def __init__(self, first: int) -> None:
        self._first = first

    def __iter__(self) -> Iterator[Row]:
        for t in range(self._first, 4):
            scores = {"accuracy": 0.25 * t, "train_loss": 1.0} if t in (1, 3) else {}
            absent = 2 if t == 2 else 0
            yield {"t": t, "seconds": 100 + 0.5 * t, "clients": 0, "absent": absent, **scores}


def shown(first: int, terminal: bool, monkeypatch: pytest.MonkeyPatch) -> str:
    console = Console(file=StringIO(), width=120, force_terminal=terminal)
    monkeypatch.setattr(progress, "Console", lambda **_: console)
    rows = Rows(first)
    assert list(progress.show_progress(rows)) == list(rows)  # type: ignore[arg-type]
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_lines_for_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(-1, False, monkeypatch).splitlines() == [
        "round 2/4  accuracy 0.2500  train_loss 1.0000",
        "round 3: 2 replies were missing or refused; the round is skipped",
        "round 4/4  accuracy 0.7500  train_loss 1.0000",
    ]


@pytest.mark.parametrize("first", [-1, 1])  # from the opening, or gone on with
def test_the_speed_is_that_of_the_rounds_alone(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    out = shown(first, True, monkeypatch)
    assert "2.0 rounds/s" in out
    assert "accuracy 0.7500" in out
