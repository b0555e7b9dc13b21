"""Run files and verdicts, found and read."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tunefree.errors import ConfigError
from tunefree.record import Record
from tunefree.report.runs import Reading


class Opened(NamedTuple):
    """What there is at the paths that were given."""

    runs: list[Reading]
    verdicts: list[dict[str, Any]]
    unreadable: list[Path]  # files in folders that are called like run files
    empty: list[Path]  # folders without runs and verdicts


def read(path: Path) -> Reading:
    """The run so far; the file may be growing."""
    record = Record.open(path)
    try:
        facts = record.facts()
        if facts.get("state") == "running":
            facts["state"] = record.state  # nobody may be writing it any more
        return Reading(
            path,
            facts,
            record.history(),
            record.staleness(),
            record.uploads(),
            Counter(reason for *_, reason in record.absences()),
        )
    except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"'{path}' cannot be read as a run file ({error})") from error
    finally:
        record.close()


def opened(paths: Iterable[Path], reading: Callable[[Path], Reading] = read) -> Opened:
    """All that is meant: a folder means every run file and all verdicts in it, however deep.

    A file that cannot be read is an error only if it was named itself.
    """
    runs: dict[Path, Reading] = {}
    claims: dict[Path, list[dict[str, Any]]] = {}
    unreadable: dict[Path, None] = {}
    empty = []
    for path in paths:
        if not path.is_dir():
            runs[path] = reading(path)
            continue
        files, kept = sorted(path.rglob("*.sqlite")), sorted(path.rglob("verdicts.json"))
        for file in files:
            try:
                runs[file] = reading(file)
            except ConfigError:
                unreadable[file] = None
        claims |= {file: verdicts(file) for file in kept}
        if not kept and set(files) <= set(unreadable):
            empty.append(path)
    rows = [row for each in claims.values() for row in each]
    return Opened(list(runs.values()), rows, list(unreadable), empty)


def verdicts(file: Path) -> list[dict[str, Any]]:
    """The claims of a reproduction and what became of them."""
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"'{file}' cannot be read as a list of verdicts ({error})") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ConfigError(f"'{file}' must be a list of verdicts, each an object")
    return rows


def check_not_empty(found: Opened) -> None:
    """Refuse a folder in which there is nothing to report."""
    for folder in found.empty:
        inside = [file.name for file in found.unreadable if file.is_relative_to(folder)]
        bad = f" ({', '.join(inside)} cannot be read as one)" if inside else ""
        raise ConfigError(
            f"there is no run file (*.sqlite) in the folder '{folder}'{bad}; "
            "give a folder that `tunefree run --out` or `tunefree compare` has written to"
        )
