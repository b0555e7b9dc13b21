"""`tunefree runs`: the runs in a folder and how they ended."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tunefree.cli import flags
from tunefree.cli.tables import Answer, table
from tunefree.errors import ConfigError

COLUMNS = ("method", "data", "seed", "state", "round", "accuracy")


def add_to(command: argparse.ArgumentParser) -> None:
    flags.add(command, "[DIR]", "a folder with run files (default runs)", Path, Path("runs"))
    command.set_defaults(act=runs_command)


def runs_command(args: argparse.Namespace) -> Answer:
    if not args.dir.is_dir():
        raise ConfigError(f"there is no folder '{args.dir}'; give one with run files")
    files = sorted(args.dir.rglob("*.sqlite"), key=lambda file: file.stat().st_mtime)
    found = [outline(file) for file in files]
    if not found:
        return Answer(found, [f"no run files in {args.dir}; `tunefree run` writes one"])
    rows, paths = [cells(each) for each in found], [each["run"] for each in found]
    lines = table(COLUMNS, rows, ("seed", "round"), paths, wrapped=False)
    return Answer(found, lines)  # each path on its own line, easy to copy


def outline(path: Path) -> dict[str, Any]:
    """A run with its `round` so far and all its `rounds`, or why it cannot be read."""
    from tunefree.record import summarise

    try:
        run = summarise(path)
    except ConfigError as error:
        return {"run": str(path), "state": "unreadable", "reason": str(error)}
    return {**run.as_dict(), "round": run.rounds, "rounds": run.planned_rounds}


def cells(found: dict[str, Any]) -> list[str]:
    """The cells of a row; a run without accuracy shows its loss or its first own measure."""
    shown = dict(found)
    if "round" in found:
        shown["round"] = f"{found['round']}/{found['rounds'] or '?'}"
    if found.get("data"):
        shown["data"] = Path(found["data"]).name  # the user's own table may be anywhere
    measured = [name for name in found.get("measures", ()) if found[name] is not None]
    if "accuracy" in measured:
        shown["accuracy"] = f"{found['accuracy']:.4f}"
    elif measured:
        shown["accuracy"] = f"{measured[0]} {found[measured[0]]:.4g}"
    return ["" if shown.get(name) is None else str(shown[name]) for name in COLUMNS]
