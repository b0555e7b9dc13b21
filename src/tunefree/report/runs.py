"""Run files, found and read."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tunefree.errors import ConfigError
from tunefree.record import Record

Facts: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Reading:
    """What a report needs of one run file."""

    path: Path
    facts: Facts
    rows: Sequence[Mapping[str, float]]
    staleness: Mapping[int, int]
    uploads: Mapping[int, int]
    absences: Mapping[str, int]  # how often for each reason

    @property
    def config(self) -> Mapping[str, Any]:
        return self.table("config")

    @property
    def role(self) -> str:
        return str(self.facts.get("role") or "arm")

    @property
    def state(self) -> str:
        """What became of it; a trial that was given up early is `pruned`."""
        return "pruned" if "pruned" in self.facts else str(self.facts.get("state") or "unknown")

    @property
    def title(self) -> str:
        """The method's name, or else the file's."""
        name = self.config.get("algorithm", {}).get("name")
        return str(self.facts.get("title") or name or self.path.stem)

    @property
    def seed(self) -> int | None:
        seed = self.config.get("run", {}).get("seed", self.facts.get("seed"))
        return seed if isinstance(seed, int) else None

    @property
    def system(self) -> Mapping[str, int]:
        """N, S, K and T, as far as they are known."""
        return self.table("system") or self.config.get("system") or {}

    @property
    def rounds(self) -> int:
        """Server steps that are done."""
        return int(self.rows[-1]["t"]) + 1 if self.rows else 0

    @property
    def tuning_free(self) -> bool:
        """Whether its steps followed from formulas, none of them replaced by hand."""
        formulas = self.table("formulas")
        chosen = self.config.get("algorithm", {}).get("options", {})
        return bool(formulas) and not set(formulas) & set(chosen)

    def table(self, name: str) -> Mapping[str, Any]:
        """A fact that is a table; an empty one if the file has nothing like it."""
        value = self.facts.get(name)
        return value if isinstance(value, dict) else {}

    def last(self, measure: str) -> float | None:
        """The last value that was measured."""
        return next((row[measure] for row in reversed(self.rows) if measure in row), None)


def step_sizes(run: Reading) -> list[tuple[str, float, str]]:
    """Name, value and formula of every step size and weight; no formula if chosen by hand."""
    formulas = run.table("formulas")
    chosen = run.config.get("algorithm", {}).get("options", {})
    used = run.table("steps") or {n: v for n, v in chosen.items() if isinstance(v, float)}
    return [
        (name, value, "" if name in chosen else str(formulas.get(name, "")))
        for name, value in used.items()
    ]


def found(paths: Iterable[Path]) -> list[Path]:
    """Every run file that is meant: a folder means all *.sqlite in it, however deep."""
    files: dict[Path, None] = {}
    for path in paths:
        inside = sorted(path.rglob("*.sqlite")) if path.is_dir() else [path]
        if not inside:
            raise ConfigError(
                f"there is no run file (*.sqlite) in the folder '{path}'; "
                "give a folder that `tunefree run --out` or `tunefree compare` has written to"
            )
        files |= dict.fromkeys(inside)
    return list(files)


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
    except sqlite3.Error as error:
        raise ConfigError(f"'{path}' cannot be read as a run file ({error})") from error
    finally:
        record.close()


def verdicts(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The claims of a reproduction and what became of them, from folders that hold some."""
    rows: list[dict[str, Any]] = []
    files = [file for p in paths if p.is_dir() for file in sorted(p.rglob("verdicts.json"))]
    for file in dict.fromkeys(files):
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"'{file}' cannot be read as a list of verdicts ({error})") from error
        if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
            raise ConfigError(f"'{file}' must be a list of verdicts, each an object")
        rows += found
    return rows
