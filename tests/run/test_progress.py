"""One run's progress: bars with a speed on a terminal or in a notebook, lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from io import StringIO
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import rich
import rich.console
from rich.console import Console

from tunefree.core import System
from tunefree.record import Row
from tunefree.run import progress


class Rows:
    """A finished run."""

    algo = SimpleNamespace(sys=System(4, 2, 1, 4))

    def __init__(self, first: int) -> None:
        self._first = first

    def __iter__(self) -> Iterator[Row]:
        for t in range(self._first, 4):
            scores = {"accuracy": 0.25 * t, "train_loss": 1.0} if t in (1, 3) else {}
            absent = 2 if t == 2 else 0
            yield {"t": t, "seconds": 100 + 0.5 * t, "clients": 0, "absent": absent, **scores}

    def news(self) -> list[str]:
        return []


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


@pytest.mark.parametrize("first", [-1, 1])  # from the opening, or resumed
def test_the_speed_is_that_of_the_rounds_alone(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    out = shown(first, True, monkeypatch)
    assert "2.0 rounds/s" in out
    assert "accuracy 0.7500" in out


class Output:
    """What a notebook's cell shows: IPython's display, as far as it is used."""

    def __init__(self) -> None:
        self.html: list[str] = []
        self.lines: list[str] = []

    def display(self, what: Any, display_id: bool = False) -> Output | None:
        if not display_id:  # a line of its own
            self.lines.append(what.text)
            return None
        self.update(what)
        return self

    def update(self, what: Any) -> None:
        self.html.append(what._repr_mimebundle_([], [])["text/html"])


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Output:
    """Jupyter without Jupyter: rich is told that it runs there, and IPython is a stand-in."""
    cell, ipython = Output(), ModuleType("IPython.display")
    ipython.display = cell.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", ipython)
    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    monkeypatch.setattr(rich, "_console", None)  # the one that renders what a notebook shows
    monkeypatch.setattr(progress, "REDRAW", 0.0)
    return cell


def test_a_bar_that_moves_in_a_notebook(
    notebook: Output, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = Rows(-1)
    assert list(progress.show_progress(rows)) == list(rows)  # type: ignore[arg-type]
    assert "0/4" in notebook.html[0]
    assert "opening" in notebook.html[0]
    assert "4/4" in notebook.html[-1]
    assert "accuracy 0.7500" in notebook.html[-1]
    assert "━" in notebook.html[-1]
    assert len(notebook.html) > 5  # drawn again in its place
    (line,) = notebook.lines
    assert line.startswith("round 3: 2 replies were missing")
    assert capsys.readouterr() == ("", "")


def test_many_runs_in_a_notebook(notebook: Output) -> None:
    with progress.BatchProgress(runs=2, rounds=8) as bars:
        for row in Rows(0):
            bars.row("a", "polarfl, seed 0", 4, row)
        assert "polarfl, seed 0" in notebook.html[-1]
        bars.end("a", "polarfl, seed 0", 4, "done")
    assert "4/8" in notebook.html[-1]
    assert "1 of 2 runs" in notebook.html[-1]
