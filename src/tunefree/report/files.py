"""Find and read run files and verdicts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tunefree.errors import ConfigError
from tunefree.record import Summary, summarise


class Found(NamedTuple):
    """What was found at the given paths."""

    runs: list[Summary]
    verdicts: list[dict[str, Any]]
    unreadable: list[Path]  # files in folders that are named like run files
    empty: list[Path]  # folders without runs and verdicts


def find(paths: Iterable[Path], read: Callable[[Path], Summary] = summarise) -> Found:
    """The runs and verdicts at these paths; folders are searched at any depth.

    A file that cannot be read is an error only if its own path was given.
    """
    runs: dict[Path, Summary] = {}
    claims: dict[Path, list[dict[str, Any]]] = {}
    unreadable: dict[Path, None] = {}
    empty = []
    for path in paths:
        if not path.is_dir():
            runs[path] = read(path)
            continue
        files, verdict_files = sorted(path.rglob("*.sqlite")), sorted(path.rglob("verdicts.json"))
        for file in files:
            try:
                runs[file] = read(file)
            except ConfigError:
                unreadable[file] = None
        claims |= {file: verdicts(file) for file in verdict_files}
        if not verdict_files and set(files) <= set(unreadable):
            empty.append(path)
    rows = [row for each in claims.values() for row in each]
    return Found(list(runs.values()), rows, list(unreadable), empty)


def verdicts(file: Path) -> list[dict[str, Any]]:
    """The claims of a reproduction and their verdicts."""
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"'{file}' cannot be read as a list of verdicts ({error})") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ConfigError(f"'{file}' must be a list of verdicts, each an object")
    return rows


def check_not_empty(found: Found) -> None:
    """Refuse a folder with nothing to report."""
    for folder in found.empty:
        inside = [file.name for file in found.unreadable if file.is_relative_to(folder)]
        bad = f" ({', '.join(inside)} cannot be read as one)" if inside else ""
        raise ConfigError(
            f"there is no run file (*.sqlite) in the folder '{folder}'{bad}; "
            "give a folder that `tunefree run --out` or `tunefree compare` wrote to"
        )
