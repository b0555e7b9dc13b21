"""How sensitive a score is to a step size, and the range of steps about as good as the best."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple, cast

from tunefree.record import Summary
from tunefree.record.facts import is_number
from tunefree.report.grouping import Content, Method, relevant, together

WITHIN = 0.05  # of the best accuracy counts as being as good

OF_METHOD = (
    "compressor",
    "decay",
    "weighting",
    "robust",
    "average",
    "explicit_steps",
)  # settings, beside its options


def sensitivity(
    sweep: Sequence[Summary], methods: Sequence[Method], measures: Iterable[str]
) -> list[Content]:
    """The score against each step size that was swept, in each setting.

    Methods with nothing to tune are horizontal lines, if they were run in the same setting.
    """
    runs = [run for run in sweep if is_number(step(run, over(run)))]
    names, order, seen = [over(run) for run in runs], list(measures), Counter[str]()
    figures = []
    for title, each in together(runs, names, [setting(run) for run in runs]).items():
        found = [m for m in order if any(run.last(m) is not None for run in each)]
        if not found:
            continue
        key = over(each[0])
        seen[key] += 1
        beside = [
            (i, method)
            for i, method in enumerate(methods)
            if method.runs[0].facts.tuning_free and setting(method.runs[0]) == setting(each[0])
        ]
        drawn = {
            m: {
                "lines": swept_lines(key, each, m, len(methods)),
                "level": [
                    {"label": method.label, "style": i, "value": end["mean"]}
                    for i, method in beside
                    if (end := method.final(m))
                ],
            }
            for m in found
        }
        figures.append(
            {
                "id": key if seen[key] == 1 else f"{key}-{seen[key]}",
                "title": title,
                "key": key,
                "measure": found[0],
                "within": WITHIN,
                "chance": chance(each[0]),
                **drawn[found[0]],
                "by": drawn,
            }
        )
    return figures


def chance(run: Summary) -> float:
    """The accuracy of guessing among its classes; 0 if they are not known."""
    return 1 / run.facts.classes if run.facts.classes else 0.0


def over(run: Summary) -> str:
    """The option that was swept."""
    return str(run.facts.sweep.get("over", ""))


def step(run: Summary, key: str) -> Hashable:
    return run.facts.values.get(f"option.{key.removeprefix('option.')}")


def setting(run: Summary) -> dict[str, Hashable]:
    """All settings that can change a result, except the method and its options."""
    return {key: value for key, value in relevant(run).items() if not of_method(key)}


def of_method(key: str) -> bool:
    return key in OF_METHOD or key.startswith("option.")


def swept_lines(key: str, runs: Sequence[Summary], measure: str, style: int) -> list[Content]:
    """One line for each method with its other options."""
    others = [
        {k: v for k, v in relevant(run).items() if of_method(k) and k != f"option.{key}"}
        for run in runs
    ]
    lines = together(runs, [run.title for run in runs], others)
    return [
        swept_line(name, style + i, key, each, measure)
        for i, (name, each) in enumerate(lines.items())
    ]


def swept_line(name: str, style: int, key: str, runs: Sequence[Summary], measure: str) -> Content:
    at: dict[float, list[Summary]] = {}
    for run in runs:
        at.setdefault(cast("float", step(run, key)), []).append(run)
    points = [swept_point(x, at[x], measure) for x in sorted(at)]
    finished = all(run.state in ("done", "diverged") for run in runs)
    sound = [(p["x"], p["mean"]) for p in points if p["x"] > 0 and p["mean"] is not None]
    judged = measure == "accuracy" and finished and len(sound) > 1
    found = width(sound, chance=chance(runs[0])) if judged else None  # as in `tunefree sweep`
    return {
        "label": name,
        "style": style,
        "points": points,
        "theory": runs[0].facts.sweep.get("theory"),
        "width": found and found.as_dict(),
    }


def swept_point(x: float, runs: Sequence[Summary], measure: str) -> Content:
    """The scores at a value; a diverged run has accuracy 0 and no other score, and is counted."""
    lost = [run for run in runs if run.state == "diverged"]
    sound = [run for run in runs if run.state != "diverged"]
    ends = [end for run in sound if (end := run.last(measure)) is not None]
    if measure == "accuracy":
        ends += [0.0] * len(lost)
    return {
        "x": x,
        "diverged": len(lost),
        "seeds": len(ends),
        "mean": statistics.fmean(ends) if ends else None,
        "low": min(ends, default=None),
        "high": max(ends, default=None),
    }


class Width(NamedTuple):
    """The range of step sizes around the best one that are about as good."""

    best: float  # the step size with the highest accuracy
    low: float
    high: float
    cut_low: bool  # the range may extend below the smallest value that was tried
    cut_high: bool

    @property
    def decades(self) -> float:
        return math.log10(self.high / self.low)

    def as_dict(self) -> Content:
        cut = self.cut_low or self.cut_high
        return {**self._asdict(), "decades": self.decades, "cut": cut}


def width(
    curve: Sequence[tuple[float, float]], within: float = WITHIN, chance: float = 0.0
) -> Width | None:
    """The range around the best step size with accuracies within `within` of the best.

    It ends where the curve, interpolated on a logarithmic axis, falls below that. There is none if
    no value is clearly better than `chance`, the accuracy of guessing.

    >>> round(width([(0.01, 0.8), (0.1, 0.9), (1.0, 0.4)]).decades, 3)
    0.6
    >>> width([(0.01, 0.12), (0.1, 0.08)], chance=0.1)
    """
    values, scores = zip(*curve, strict=True)
    best = max(range(len(scores)), key=lambda place: scores[place])
    floor = scores[best] - within
    if floor <= chance:
        return None

    def end(direction: int) -> tuple[float, bool]:
        place = best
        while 0 <= place + direction < len(values) and scores[place + direction] >= floor:
            place += direction
        beyond = place + direction
        if not 0 <= beyond < len(values):
            return values[place], True
        part = (scores[place] - floor) / (scores[place] - scores[beyond])
        log = math.log10(values[place]) + part * math.log10(values[beyond] / values[place])
        return 10**log, False

    (low, cut_low), (high, cut_high) = end(-1), end(+1)
    return Width(values[best], low, high, cut_low, cut_high)
