"""When a claim holds: each of its parts is a number per seed that must be above or below a limit.

A part is not decided if its mean is within a standard error of the limit, or if there are fewer
than two seeds. A claim holds if all of its parts hold, and does not hold if one of them fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import mean, stdev
from typing import Any, Literal, NamedTuple, TypeAlias

Word = Literal["holds", "does not hold", "not decided"]
Row: TypeAlias = dict[str, Any]  # a verdict as it is stored
Side = Literal["above", "below", "exactly"]

RULE = (
    "A claim is split into parts, each a number per seed whose mean must be above (or below) a "
    "limit. A part is not decided if runs are missing, if there are fewer than two seeds, or if "
    "the mean is within one standard error of the limit; methods are compared seed by seed. A "
    "claim holds if all of its parts hold, does not hold if one of them fails, and is not decided "
    "otherwise."
)
REASONS: Mapping[Word, str] = {  # of a claim that does not hold, by its verdict in own units
    "holds": "the step sizes: in the model's own unit of length the claim holds",
    "does not hold": "not the step sizes alone: in the model's own unit of length the claim still "
    "does not hold",
    "not decided": "not decided",
}


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
    """The verdict on a claim, and the parts it rests on."""

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
    """A number that does not depend on the seed, such as the size of a message."""
    return Part(what, value, 0.0, wanted, "exactly", abs(value - wanted) <= tolerance)


def fact(what: str, value: float, limit: float, side: Side) -> Part:
    """A number without an error over seeds, such as the worst of many."""
    holds = value > limit if side == "above" else value < limit
    return Part(what, value, 0.0, limit, side, holds)


def within(what: str, values: Sequence[float], limit: float) -> list[Part]:
    """Whether the mean is between -limit and limit."""
    return [above(what, values, -limit), below(what, values, limit)]


def decide(parts: Sequence[Part], numbers: Mapping[str, float | str] = {}) -> Verdict:
    """The verdict from all parts, with further numbers worth showing."""
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
