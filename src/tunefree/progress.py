"""Progress on standard error: a live bar on a terminal, a line per evaluation elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from tunefree.record import Row
from tunefree.run import Run


def shown(run: Run) -> Iterator[Row]:
    """The run's rows as they come, made visible."""
    console = Console(stderr=True)
    return on_terminal(run, console) if console.is_terminal else in_lines(run, console)


def on_terminal(run: Run, console: Console) -> Iterator[Row]:
    columns = (
        TextColumn("round"),
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("{task.fields[scores]}"),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=run.algo.sys.T, scores="opening", speed="")
        scores, seconds = "", 0.0
        for row in run:
            tell_absent(row, progress.console)
            scores = sentence(row) or scores
            seconds += row["seconds"] if row["t"] >= 0 else 0
            done = int(row["t"]) + 1
            speed = f"{done / seconds:.1f} rounds/s" if seconds else ""
            progress.update(task, completed=done, scores=scores, speed=speed)
            yield row


def in_lines(run: Run, console: Console) -> Iterator[Row]:
    T = run.algo.sys.T
    for row in run:
        tell_absent(row, console)
        scores = sentence(row)
        if scores:
            console.print(f"round {int(row['t']) + 1}/{T}  {scores}", highlight=False)
        yield row


def sentence(row: Row) -> str:
    """The scores of a row in words, or nothing where none were taken."""
    names = ("accuracy", "loss", "train_loss", "grad_norm")
    return "  ".join(f"{name} {row[name]:.4f}" for name in names if name in row)


def tell_absent(row: Row, console: Console) -> None:
    """Say that replies could not be used, and when a whole round was lost for it."""
    if row["absent"]:
        end = "" if row["clients"] else "; the round is skipped"
        when = f"round {int(row['t']) + 1}" if row["t"] >= 0 else "opening"
        console.print(f"{when}: {row['absent']} replies were missing or refused{end}")
