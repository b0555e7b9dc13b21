"""`tunefree runs`: the runs in a folder and how they ended."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tunefree.cli.tables import print_entries
from tunefree.errors import ConfigError

COLUMNS = ("method", "data", "seed", "state", "round", "accuracy")


def add_to(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path("runs"),
        metavar="DIR",
        help="a folder with run files (default runs)",
    )
    command.set_defaults(act=runs_command)


def runs_command(args: argparse.Namespace) -> int:
    if not args.folder.is_dir():
        raise ConfigError(f"there is no folder '{args.folder}'; give one with run files")
    files = sorted(args.folder.rglob("*.sqlite"), key=lambda file: file.stat().st_mtime)
    found = [outline(file) for file in files]
    if args.format == "json":
        print(json.dumps(found))
    elif found:
        paths = [each["run"] for each in found]  # each on its own line, easy to copy
        rows = [cells(each) for each in found]
        print_entries(COLUMNS, rows, paths, right=("seed", "round"), wrapped=False)
    else:
        print(f"no run files in {args.folder}; `tunefree run` writes one")
    return 0


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
