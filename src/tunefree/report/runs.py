"""A run as a report sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

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
    def options(self) -> Mapping[str, Any]:
        """What was set of its method, in the settings or by the caller of `tunefree.train`."""
        return (self.config.get("algorithm") or self.table("train")).get("options") or {}

    @property
    def given_steps(self) -> dict[str, float]:
        """The options that are numbers; one may have been typed as a whole number."""
        return {name: value for name, value in self.options.items() if is_number(value)}

    @property
    def searched(self) -> Mapping[str, float]:
        """What a search has found; older files do not tell it from what was given beside it."""
        tuning = self.table("tuning")
        found: Mapping[str, float] = tuning.get("chosen", self.given_steps) if tuning else {}
        return found

    @property
    def validated(self) -> bool:
        """Whether it was scored on samples held out of training, not on the test set."""
        return bool(self.config.get("data", {}).get("validation"))

    @property
    def rounds(self) -> int:
        """Server steps that are done."""
        return int(self.rows[-1]["t"]) + 1 if self.rows else 0

    @property
    def tuning_free(self) -> bool:
        """Whether its steps followed from formulas, none of them replaced by hand."""
        formulas = self.table("formulas")
        return bool(formulas) and not set(formulas) & set(self.options)

    def table(self, name: str) -> Mapping[str, Any]:
        """A fact that is a table; an empty one if the file has nothing like it."""
        value = self.facts.get(name)
        return value if isinstance(value, dict) else {}

    def last(self, measure: str) -> float | None:
        """The last value that was measured."""
        return next((row[measure] for row in reversed(self.rows) if measure in row), None)


def step_sizes(run: Reading) -> list[tuple[str, float, str]]:
    """Name and value of every step size and weight, and where it came from."""
    used = {**run.given_steps, **run.table("steps")}  # older files lack some given ones there
    return [(name, value, origin(run, name, value)) for name, value in used.items()]


def origin(run: Reading, name: str, value: float) -> str:
    """The formula of a step size, or who chose it."""
    if name in run.searched and run.searched[name] == value:
        return "found by the search"
    if name in run.options:
        return "given"
    return str(run.table("formulas").get(name) or "default")


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
