"""Verdicts and pictures in a folder: verdicts.json, and pictures/FIGURE-SCALE.png.

Beside a page both are in one folder, with challenge.md if `challenge page` wrote it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tunefree.errors import ConfigError
from tunefree_evidence.claims.claims import FIGURES
from tunefree_evidence.claims.recipes import SCALES
from tunefree_evidence.claims.verdicts import Row
from tunefree_evidence.machine import write_whole

VERDICTS = "verdicts.json"
PICTURES = "pictures"
CHALLENGE = "challenge.md"


def read(folder: Path) -> list[Row]:
    """The verdicts in a folder."""
    path = folder / VERDICTS
    if not path.exists():
        return []
    try:
        rows: list[Row] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"'{path}' is damaged ({error}); move it away and run again") from error
    return rows


def save(folder: Path, *new: Row) -> None:
    """Store verdicts; they replace those on the same claims at the same sizes.

    A claim's verdict in own units stays as long as its seeds and numbers are the same.
    """
    rows: dict[tuple[int, int], Row] = {}
    for row in (*read(folder), *new):
        key = row["claim"], SCALES.index(row["scale"])
        old = rows.get(key, {})
        same = all(old.get(name) == row.get(name) for name in ("verdict", "seeds", "numbers"))
        steps = {"own_units", "reason"} & old.keys() if same else ()
        known = {name: old[name] for name in steps}
        rows[key] = {**known, **row}
    write_whole(folder / VERDICTS, json.dumps([rows[key] for key in sorted(rows)], indent=1))


def publish(source: Path, folder: Path) -> None:
    """Copy verdicts and pictures into a folder; those of other claims and figures stay."""
    save(folder, *read(source))
    for path in sorted((source / PICTURES).glob("*.png")):
        shutil.copyfile(path, folder / path.name)


def pictures(folder: Path) -> dict[str, Path]:
    """The picture of each published figure, at the largest size available."""
    found = {}
    for figure in FIGURES:
        for scale in SCALES:
            path = folder / f"{figure}-{scale}.png"
            if path.exists():
                found[figure] = path
    return found


def challenge(folder: Path) -> str:
    """The text on the challenge in a folder, if there is one."""
    path = folder / CHALLENGE
    return path.read_text(encoding="utf-8").strip() if path.exists() else ""
