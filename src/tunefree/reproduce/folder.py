"""Verdicts and pictures in a folder: verdicts.json, and pictures/FIGURE-SCALE.png.

Beside a page they lie in one folder, with challenge.md if `tunefree challenge page` wrote it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, TypeAlias

from tunefree.errors import ConfigError
from tunefree.experiments import atomic_file
from tunefree.reproduce.claims import FIGURES
from tunefree.reproduce.recipes import SCALES

VERDICTS = "verdicts.json"
PICTURES = "pictures"
CHALLENGE = "challenge.md"

Row: TypeAlias = dict[str, Any]  # a verdict as it is written


def read(folder: Path) -> list[Row]:
    """The verdicts in a folder."""
    path = folder / VERDICTS
    if not path.exists():
        return []
    try:
        rows: list[Row] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"'{path}' is damaged ({error}); move it away and ask again") from error
    return [with_methods(row) for row in rows]


def with_methods(row: Row) -> Row:
    """The row with `method` where older files say `arm`."""
    ends = {"finals": [renamed(end) for end in row["finals"]]} if "finals" in row else {}
    own = {"own_units": with_methods(row["own_units"])} if "own_units" in row else {}
    return row | ends | own


def renamed(end: Row) -> Row:
    return {"method" if key == "arm" else key: value for key, value in end.items()}


def keep(folder: Path, *new: Row) -> None:
    """Write verdicts in place of those on the same claims at the same sizes.

    What was found out about a claim's steps stays as long as its seeds and numbers are the same.
    """
    rows: dict[tuple[int, int], Row] = {}
    for row in (*read(folder), *new):
        key = row["claim"], SCALES.index(row["scale"])
        old = rows.get(key, {})
        same = all(old.get(name) == row.get(name) for name in ("verdict", "seeds", "numbers"))
        steps = {"own_units", "reason"} & old.keys() if same else ()
        known = {name: old[name] for name in steps}
        rows[key] = {**known, **row}
    atomic_file.write(folder / VERDICTS, json.dumps([rows[key] for key in sorted(rows)], indent=1))


def publish(source: Path, folder: Path) -> None:
    """Bring what was found into a folder; what it holds of other claims and figures stays."""
    keep(folder, *read(source))
    for path in sorted((source / PICTURES).glob("*.png")):
        shutil.copyfile(path, folder / path.name)


def pictures(folder: Path) -> dict[str, Path]:
    """The picture of each published figure, at the largest size there is."""
    found = {}
    for figure in FIGURES:
        for scale in SCALES:
            path = folder / f"{figure}-{scale}.png"
            if path.exists():
                found[figure] = path
    return found


def challenge(folder: Path) -> str:
    """The text on the challenge that lies there, if any does."""
    path = folder / CHALLENGE
    return path.read_text(encoding="utf-8").strip() if path.exists() else ""
