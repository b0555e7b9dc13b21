"""How much a score depends on a step size."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Sequence
from typing import cast

from tunefree.report.arms import Arm, Content, flattened, relevant, together
from tunefree.report.runs import Reading


def sensitivity(
    sweep: Sequence[Reading], arms: Sequence[Arm], measures: Sequence[str]
) -> list[Content]:
    """For each step size that was swept: the last score against it.

    Methods that have nothing to tune are level lines.
    """
    by_key: dict[str, list[Reading]] = {}
    for run in sweep:
        key = run.table("sweep").get("over") or swept_key(sweep)
        if key and isinstance(step(run, key), int | float):
            by_key.setdefault(key, []).append(run)
    figures = []
    for key, runs in by_key.items():
        measure = next((m for m in measures if any(r.last(m) is not None for r in runs)), None)
        if measure is None:
            continue
        others = [
            {k: v for k, v in relevant(run).items() if k != f"algorithm.{key}"} for run in runs
        ]
        lines = together(runs, [run.title for run in runs], others)
        figures.append(
            {
                "key": key,
                "measure": measure,
                "lines": [
                    swept_line(name, len(arms) + i, key, each, measure)
                    for i, (name, each) in enumerate(lines.items())
                ],
                "level": [
                    {"label": arm.label, "style": i, "value": end["mean"]}
                    for i, arm in enumerate(arms)
                    if arm.runs[0].tuning_free and (end := arm.final(measure))
                ],
            }
        )
    return figures


def swept_key(sweep: Sequence[Reading]) -> str | None:
    """The option that varies, where nobody noted which one was swept."""
    varied = [
        key.removeprefix("algorithm.")
        for key in dict.fromkeys(key for run in sweep for key in flattened(run.config))
        if key.startswith("algorithm.")
        and len({value for run in sweep if isinstance(value := step(run, key), float)}) > 1
    ]
    return "eta" if "eta" in varied else next(iter(varied), None)


def step(run: Reading, key: str) -> Hashable:
    return flattened(run.config).get(f"algorithm.{key.removeprefix('algorithm.')}")


def swept_line(name: str, style: int, key: str, runs: Sequence[Reading], measure: str) -> Content:
    at: dict[float, list[Reading]] = {}
    for run in runs:
        at.setdefault(cast("float", step(run, key)), []).append(run)
    return {
        "label": name,
        "style": style,
        "points": [swept_point(x, at[x], measure) for x in sorted(at)],
        "theory": runs[0].table("sweep").get("theory"),
    }


def swept_point(x: float, runs: Sequence[Reading], measure: str) -> Content:
    """A diverged run has no last score worth drawing; it is counted instead."""
    sound = [run for run in runs if run.state != "diverged"]
    ends = [end for run in sound if (end := run.last(measure)) is not None]
    diverged = len(runs) - len(sound)
    return {
        **{"x": x, "diverged": diverged, "seeds": len(ends)},
        "mean": statistics.fmean(ends) if ends else None,
        "low": min(ends, default=None),
        "high": max(ends, default=None),
    }
