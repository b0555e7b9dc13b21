"""When a claim holds: every part of it is a number, one per seed, that must be above a limit.

A part is not decided where the mean is as close to its limit as its standard error, or where there
are fewer than two seeds. A claim holds if all of its parts do and fails if one of them does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import mean, stdev
from typing import Literal, NamedTuple

Word = Literal["holds", "does not hold", "not decided"]
Side = Literal["above", "below", "exactly"]

RULE = (
    "Each part of a claim is a number per seed that must be above (or below) a limit. It is not "
    "decided where runs are missing, where there are fewer than two seeds, or where the mean is "
    "within one standard error of the limit; methods are compared seed by seed. A claim holds if "
    "all of its parts hold, and does not hold if one of them fails."
)


class Part(NamedTuple):
    """One number of a claim and what it must be."""

    what: str
    value: float
    error: float  # standard error over seeds
    limit: float
    side: Side
    holds: bool | None  # None is not decided

    @property
    def number(self) -> str:
        return f"{self.value:.4g}" + ("" if self.error == 0 else f" ± {self.error:.2g}")

    def __str__(self) -> str:
        return f"{self.what}: {self.number}, must be {self.side} {self.limit:.4g}"


class Verdict(NamedTuple):
    """What the parts say together."""

    word: Word
    numbers: Mapping[str, float | str]
    why: str
    parts: Sequence[Part] = ()


def above(what: str, values: Sequence[float], limit: float) -> Part:
    """Whether the mean is above the limit, by more than its standard error."""
    return part(what, values, limit, "above")


def below(what: str, values: Sequence[float], limit: float) -> Part:
    """Whether the mean is below the limit, by more than its standard error."""
    return part(what, values, limit, "below")


def part(what: str, values: Sequence[float], limit: float, side: Side) -> Part:
    if not values:
        return Part(what, float("nan"), 0.0, limit, side, None)
    value = mean(values)
    error = stdev(values) / sqrt(len(values)) if len(values) > 1 else 0.0
    clear = len(values) > 1 and abs(value - limit) > error
    return Part(
        what, value, error, limit, side, (value > limit) == (side == "above") if clear else None
    )


def exact(what: str, value: float, wanted: float, tolerance: float = 0.0) -> Part:
    """A number that no seed changes, such as the size of a message."""
    return Part(what, value, 0.0, wanted, "exactly", abs(value - wanted) <= tolerance)


def fact(what: str, value: float, limit: float, side: Side) -> Part:
    """A number that stands for itself, such as the worst of many."""
    holds = value > limit if side == "above" else value < limit
    return Part(what, value, 0.0, limit, side, holds)


def within(what: str, values: Sequence[float], limit: float) -> list[Part]:
    """Whether the mean lies between -limit and limit."""
    return [above(what, values, -limit), below(what, values, limit)]


def decide(parts: Sequence[Part], numbers: Mapping[str, float | str] = {}) -> Verdict:
    """All parts together, with further numbers worth knowing."""
    failed = [str(p) for p in parts if p.holds is False]
    open_ = [str(p) for p in parts if p.holds is None]
    if failed:
        word: Word = "does not hold"
    elif open_ or not parts:
        word = "not decided"
    else:
        word = "holds"
    shown = {p.what: round(p.value, 5) for p in parts} | dict(numbers)
    why = "; ".join(
        [f"fails: {text}" for text in failed] + [f"too close or missing: {text}" for text in open_]
    )
    return Verdict(word, shown, why or f"all {len(parts)} parts hold", tuple(parts))
