"""The sensitivity of a score to a step size."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import cast

from tunefree.record import Summary
from tunefree.record.facts import is_number
from tunefree.report.methods import Content, Method, flatten, relevant, together
from tunefree.report.width import WITHIN, width

OF_METHOD = ("compressor", "decay", "weighting", "explicit_steps")  # settings, beside its options


def sensitivity(
    sweep: Sequence[Summary], methods: Sequence[Method], measures: Iterable[str]
) -> list[Content]:
    """The score against each step size that was swept, in each setting.

    Methods with nothing to tune are horizontal lines, if they were run in the same setting.
    """
    unnoted = swept_key(sweep)
    over = {run.path: str(run.facts.sweep.get("over") or unnoted) for run in sweep}
    runs = [run for run in sweep if is_number(step(run, over[run.path]))]
    names, order, seen = [over[run.path] for run in runs], list(measures), Counter[str]()
    figures = []
    for title, each in together(runs, names, [setting(run) for run in runs]).items():
        found = [m for m in order if any(run.last(m) is not None for run in each)]
        if not found:
            continue
        key = over[each[0].path]
        seen[key] += 1
        beside = [
            (i, method)
            for i, method in enumerate(methods)
            if method.runs[0].facts.tuning_free and setting(method.runs[0]) == setting(each[0])
        ]
        drawn = {m: by_measure(key, each, m, len(methods), beside) for m in found}
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


def by_measure(
    key: str,
    runs: Sequence[Summary],
    measure: str,
    style: int,
    beside: Sequence[tuple[int, Method]],
) -> Content:
    """The figure of one score: a line for each swept method, and the horizontal ones."""
    return {
        "lines": swept_lines(key, runs, measure, style),
        "level": [
            {"label": method.label, "style": i, "value": end["mean"]}
            for i, method in beside
            if (end := method.final(measure))
        ],
    }


def chance(run: Summary) -> float:
    """The accuracy of guessing among its classes; 0 if they are not known."""
    return 1 / run.facts.classes if run.facts.classes else 0.0


def swept_key(sweep: Sequence[Summary]) -> str | None:
    """The option that varies, for files that do not record which one was swept."""
    varied = [
        key.removeprefix("option.")
        for key in dict.fromkeys(key for run in sweep for key in flatten(run.facts.settings))
        if key.startswith("option.")
        and len({value for run in sweep if is_number(value := step(run, key))}) > 1
    ]
    return "eta" if "eta" in varied else next(iter(varied), None)


def step(run: Summary, key: str) -> Hashable:
    return flatten(run.facts.settings).get(f"option.{key.removeprefix('option.')}")


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
    return {
        "label": name,
        "style": style,
        "points": points,
        "theory": runs[0].facts.sweep.get("theory"),
        "width": working_range(points, runs[0]) if measure == "accuracy" and finished else None,
    }


def swept_point(x: float, runs: Sequence[Summary], measure: str) -> Content:
    """The scores at a value; a diverged run has accuracy 0 and no other score, and is counted."""
    lost = [run for run in runs if run.state == "diverged"]
    sound = [run for run in runs if run.state != "diverged"]
    ends = [end for run in sound if (end := run.last(measure)) is not None]
    if measure == "accuracy":
        ends += [0.0] * len(lost)
    return {
        **{"x": x, "diverged": len(lost), "seeds": len(ends)},
        "mean": statistics.fmean(ends) if ends else None,
        "low": min(ends, default=None),
        "high": max(ends, default=None),
    }


def working_range(points: Sequence[Content], run: Summary) -> Content | None:
    """The range of step sizes about as good as the best, as in `tunefree sweep`."""
    curve = [(p["x"], p["mean"]) for p in points if p["x"] > 0 and p["mean"] is not None]
    found = width(curve, chance=chance(run)) if len(curve) > 1 else None
    return found and {
        **{"best": found.best, "low": found.low, "high": found.high, "decades": found.decades},
        "cut": found.cut_low or found.cut_high,
    }
