"""A batch's progress on standard error: live bars on a terminal, a line per run elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

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

from tunefree.experiments.batch import Event, Heard, Planned, Result
from tunefree.progress import sentence
from tunefree.record import Row


def watched(runs: Sequence[Planned], events: Iterator[Event]) -> Iterator[Result]:
    """The results as they come, and on the way all else made visible; each note once."""
    console = Console(stderr=True)
    show = on_terminal if console.is_terminal else in_lines
    return show(runs, without_echo(events, console), console)


def without_echo(events: Iterator[Event], console: Console) -> Iterator[Heard | Result]:
    said = set()
    for event in events:
        if not isinstance(event, str):
            yield event
        elif event not in said:
            said.add(event)
            console.print(f"note: {event}", highlight=False, soft_wrap=True)


def on_terminal(
    runs: Sequence[Planned], events: Iterator[Heard | Result], console: Console
) -> Iterator[Result]:
    """A bar for all rounds of all runs, and a line for each run at work."""
    columns = (
        TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        BarColumn(bar_width=12),
        TextColumn("{task.fields[scores]}", table_column=Column(no_wrap=True)),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
    )
    with Progress(*columns, console=console, expand=True) as progress:
        total = sum(run.config.system.T for run in runs)
        whole = progress.add_task("all rounds", total=total, scores="")
        lines: dict[Path, TaskID] = {}
        rounds: dict[Path, int] = {}
        finished = 0
        for event in events:
            run, T = event.planned, event.planned.config.system.T
            if isinstance(event, Result):
                finished += 1
                rounds[run.path] = T
                if run.path in lines:
                    progress.remove_task(lines.pop(run.path))
                yield event
            else:
                if run.path not in lines:
                    lines[run.path] = progress.add_task(run.name, total=T, scores="")
                rounds[run.path] = int(event.row["t"]) + 1
                scores = headline(event.row)
                progress.update(lines[run.path], completed=rounds[run.path])
                if scores:
                    progress.update(lines[run.path], scores=scores)
            done = f"{finished} of {len(runs)} runs"
            progress.update(whole, completed=sum(rounds.values()), scores=done)


def headline(row: Row) -> str:
    """The one score that fits beside a bar."""
    name = next((name for name in ("accuracy", "loss", "train_loss") if name in row), "")
    return f"{name.replace('_', ' ')} {row[name]:.4f}" if name else ""


def in_lines(
    runs: Sequence[Planned], events: Iterator[Heard | Result], console: Console
) -> Iterator[Result]:
    finished = 0
    for event in events:
        if isinstance(event, Result):
            finished += 1
            console.print(
                f"{finished}/{len(runs)} {event.planned.name}: {outcome(event)}",
                highlight=False,
                soft_wrap=True,
            )
            yield event


def outcome(result: Result) -> str:
    """A result in a few words."""
    rounds = max(0, len(result.history) - 1)
    if result.state == "done":
        return sentence(result.scores[-1]) if result.scores else "done"
    if result.state == "failed":
        return f"failed: {result.reason}"
    return f"{result.state} after {rounds} of {result.planned.config.system.T} rounds"
