"""Verdicts and pictures in a folder: verdicts.json, and pictures/FIGURE-SCALE.png."""

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
    return rows


def keep(folder: Path, *new: Row) -> None:
    """Write verdicts in place of those on the same claims at the same sizes."""
    rows = {(row["claim"], SCALES.index(row["scale"])): row for row in (*read(folder), *new)}
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
