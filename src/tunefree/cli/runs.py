"""`tunefree runs`: what was run in a folder, and how it ended."""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from pathlib import Path
from typing import Any

from tunefree.cli.tables import print_table
from tunefree.errors import ConfigError


def add_to(command: argparse.ArgumentParser) -> None:
    command.add_argument("folder", nargs="?", type=Path, default=Path("runs"), metavar="DIR")
    command.set_defaults(act=runs_command)


def runs_command(args: argparse.Namespace) -> int:
    if not args.folder.is_dir():
        raise ConfigError(f"there is no folder '{args.folder}'; give one that holds run files")
    files = sorted(args.folder.rglob("*.sqlite"), key=lambda file: file.stat().st_mtime)
    found = [outline(file) for file in files]
    if args.format == "json":
        print(json.dumps(found))
    elif found:
        columns = ("run", "method", "data", "seed", "state", "round", "accuracy")
        print_table(columns, map(cells, found), wrapped=("run",), right=("seed", "round"))
    else:
        print(f"no run files in {args.folder}; `tunefree run` makes one")
    return 0


def outline(path: Path) -> dict[str, Any]:
    """A run in one line, or why its file cannot be read."""
    from tunefree.record import Record

    try:
        with closing(Record.open(path)) as record:
            facts, state, history = record.facts(), record.state, record.history()
    except ConfigError as error:
        return {"run": str(path), "state": "unreadable", "reason": str(error)}
    config = facts.get("config", {})
    scored = [row["accuracy"] for row in history if "accuracy" in row]
    return {
        "run": str(path),
        "method": facts.get("title"),
        "data": config.get("data", {}).get("name"),
        "seed": config.get("run", {}).get("seed"),
        "state": state,
        "round": int(history[-1]["t"]) + 1 if history else 0,
        "rounds": facts.get("system", {}).get("T"),
        "accuracy": scored[-1] if scored else None,
    }


def cells(found: dict[str, Any]) -> tuple[str, ...]:
    accuracy = found.get("accuracy")
    return (
        found["run"],
        found.get("method") or "",
        found.get("data") or "",
        str(found["seed"]) if found.get("seed") is not None else "",
        found["state"],
        f"{found['round']}/{found['rounds'] or '?'}" if "round" in found else "",
        f"{accuracy:.4f}" if accuracy is not None else "",
    )
