"""Progress of runs: live bars on a terminal or in a notebook, lines elsewhere; and Ctrl-C."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Hashable, Iterator
from importlib import import_module
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from tunefree.record import Row
from tunefree.record.summary import NO_SCORES
from tunefree.run.engine import Training

REDRAW = 0.1  # seconds between redraws in a notebook


class Stop:
    """Ctrl-C or SIGTERM: the first stops the run after its step, the second at once.

    Only the main thread receives signals; elsewhere it does nothing.
    """

    def __init__(self, *signals: signal.Signals) -> None:
        self.asked = False
        self._signals = signals
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._before = {each: signal.signal(each, self._ask) for each in self._signals}

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, *_: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        sys.stderr.write("\nstopping after this round; once more to stop at once\n")


def show_progress(run: Training) -> Iterator[Row]:
    """Yield the run's rows and show its progress."""
    console, T = Console(stderr=True), run.algo.sys.T
    speed = TextColumn("{task.fields[speed]}")
    progress = bars(console, TextColumn("round"), speed)
    task = progress.add_task("", total=T, scores="opening", speed="")
    with progress:
        first: Row | None = None
        for row in run:
            print_absent(row, console)
            for news in run.news():
                say(console, f"round {int(row['t']) + 1}: {news}")
            scores, done = sentence(row), int(row["t"]) + 1
            if scores and not is_live(console):
                say(console, f"round {done}/{T}  {scores}")
            first = first or row
            seconds = row["seconds"] - first["seconds"]
            if seconds > 0:
                progress.update(task, speed=f"{(row['t'] - first['t']) / seconds:.1f} rounds/s")
            progress.update(task, completed=done)
            if scores:
                progress.update(task, scores=scores)
            yield row


class BatchProgress:
    """A bar for all rounds of all runs and one for each active run, or a line for each result."""

    def __init__(self, runs: int, rounds: int, console: Console | None = None) -> None:
        self._console, self._runs = console or Console(stderr=True), runs
        name = TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True))
        self._bars = bars(self._console, name, width=12, expand=True)
        self._whole = self._bars.add_task("all rounds", total=rounds, scores="")
        self._lines: dict[Hashable, TaskID] = {}
        self._rounds: dict[Hashable, int] = {}
        self._ended = 0
        self._notes: set[str] = set()

    def __enter__(self) -> BatchProgress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def note(self, text: str) -> None:
        """Print a note, but only once."""
        if text not in self._notes:
            self._notes.add(text)
            say(self._console, f"note: {text}")

    def row(self, run: Hashable, name: str, T: int, row: Row) -> None:
        """Update the bars with a row of a run."""
        if run not in self._lines:
            self._lines[run] = self._bars.add_task(name, total=T, scores="")
        scores, done = headline(row), int(row["t"]) + 1
        self._bars.update(self._lines[run], completed=done)
        if scores:
            self._bars.update(self._lines[run], scores=scores)
        self._sum_up(run, done)

    def end(self, run: Hashable, name: str, T: int, outcome: str) -> None:
        """A run has ended."""
        self._ended += 1
        if run in self._lines:
            self._bars.remove_task(self._lines.pop(run))
        if not is_live(self._console):
            say(self._console, f"{self._ended}/{self._runs} {name}: {outcome}")
        self._sum_up(run, T)

    def _sum_up(self, run: Hashable, rounds: int) -> None:
        self._rounds[run] = rounds
        ended = f"{self._ended} of {self._runs} runs"
        self._bars.update(self._whole, completed=sum(self._rounds.values()), scores=ended)


def bars(
    console: Console, name: TextColumn, *more: TextColumn, width: int = 40, expand: bool = False
) -> Progress:
    """A line per task: its progress, scores and remaining time; only where it can be redrawn."""
    columns = (
        name,
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        BarColumn(bar_width=width),
        TextColumn("{task.fields[scores]}"),
        *more,
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
    )
    kind = NotebookBars if console.is_jupyter else Progress
    return kind(*columns, console=console, expand=expand, disable=not is_live(console))


def is_live(console: Console) -> bool:
    """Whether output there can be redrawn."""
    return console.is_terminal or console.is_jupyter


class NotebookBars(Progress):
    """Bars in a notebook's output, drawn again in their place; they need no widgets."""

    def start(self) -> None:
        self._drawn = time.monotonic()
        self._place: Any = import_module("IPython.display").display(self, display_id=True)

    def stop(self) -> None:
        self._place.update(self)

    def update(self, task_id: TaskID, **changes: Any) -> None:
        super().update(task_id, **changes)
        if time.monotonic() - self._drawn > REDRAW:
            self._drawn = time.monotonic()
            self._place.update(self)


def say(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True)


def sentence(row: Row) -> str:
    """The scores of a row as text; empty if it was not evaluated."""
    first = [name for name in ("accuracy", "loss", "train_loss", "grad_norm") if name in row]
    others = [name for name in row if name not in (*first, *NO_SCORES)]
    return "  ".join(f"{name} {row[name]:.4f}" for name in (*first, *others))


def headline(row: Row) -> str:
    """The one score that fits beside a bar."""
    name = next((name for name in ("accuracy", "loss", "train_loss") if name in row), "")
    return f"{name.replace('_', ' ')} {row[name]:.4f}" if name else ""


def print_absent(row: Row, console: Console) -> None:
    """Print how many replies could not be used, and whether the round was skipped."""
    if row["absent"]:
        end = "" if row["clients"] else "; the round is skipped"
        when = f"round {int(row['t']) + 1}" if row["t"] >= 0 else "opening"
        say(console, f"{when}: {row['absent']} replies were missing or refused{end}")
