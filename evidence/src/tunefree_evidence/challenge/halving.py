"""Successive halving, by thirds: many points briefly, the best third of them longer, and so on.

Every point runs for a ninth of the rounds, the best third for a third of them, the best third of
those for all; a method with a decay decays over the rounds that it runs. The best of the last are
chosen. Scores are those of trials: mean accuracy on held-out samples in the last tenth of the
rounds, with a seed of its own; a diverged run is the worst.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tunefree.search import (
    Grid,
    Point,
    Result,
    Settings,
    at_point,
    late_mean,
    on_held_out,
    plan,
    run_groups,
    with_seed,
)

PARTS = (9, 3, 1)  # of the rounds: one in so many
KEPT = 3  # of so many points one goes on
EVALUATIONS = 4  # of a run


class Space(NamedTuple):
    """The settings of a method, and the points that are searched."""

    settings: Settings
    points: Sequence[Point]


class Bill(NamedTuple):
    """What a search took."""

    trials: int = 0
    rounds: int = 0
    bits: int = 0
    seconds: float = 0.0


class Found(NamedTuple):
    point: Point
    bill: Bill


def points_of(grid: Grid, most: int) -> list[Point]:
    """All points of a grid in random order, always the same; at most so many.

    >>> [dict(point) for point in points_of({"eta": (0.1, 0.3), "decay": ("none", "linear")}, 1)]
    [{'eta': 0.3, 'decay': 'linear'}]
    """
    points = [tuple(zip(grid, values, strict=True)) for values in product(*grid.values())]
    order = np.random.default_rng(len(points)).permutation(len(points))
    return [points[i] for i in order[:most]]


def halve(
    spaces: Mapping[str, Space], folder: Path, seed: int, workers: int = 0
) -> Mapping[str, Found]:
    """The best point of each method, all methods at once; none of one that never finished."""
    left = {method: list(space.points) for method, space in spaces.items()}
    bills = {method: Bill(len(points)) for method, points in left.items()}
    for part in PARTS:
        settings = {method: shorter(space.settings, part, seed) for method, space in spaces.items()}
        runs = [
            [plan(folder, label(method, at), at_point(settings[method], at)) for at in points]
            for method, points in left.items()
        ]
        for (method, points), results in zip(left.items(), run_groups(runs, workers), strict=True):
            bills[method] = added(bills[method], results)
            scored = sorted(zip(map(score, results), range(len(points)), strict=True))[::-1]
            best = [place for value, place in scored if value > -math.inf]
            keep = 1 if part == PARTS[-1] else math.ceil(len(points) / KEPT)
            left[method] = [points[place] for place in best[:keep]]
    return {method: Found(points[0], bills[method]) for method, points in left.items() if points}


def shorter(settings: Settings, part: int, seed: int) -> Settings:
    """A trial of one in so many rounds."""
    rounds = max(1, settings.rounds // part)
    every = max(1, rounds // EVALUATIONS)
    return with_seed(on_held_out(replace(settings, rounds=rounds, eval_every=every)), seed)


def label(method: str, point: Point) -> str:
    return f"{method}:{','.join(f'{key}={value}' for key, value in point)}"


def score(result: Result) -> float:
    if result.state != "done":
        return -math.inf
    return late_mean(result.history, result.run.settings.rounds)


def added(bill: Bill, results: Sequence[Result]) -> Bill:
    """The bill with what these runs took, failed ones too."""
    ends = [result.history[-1] for result in results if result.history]
    return Bill(
        bill.trials,
        bill.rounds + sum(int(row["t"]) + 1 for row in ends),
        bill.bits + sum(int(row["bits_up"] + row["bits_down"]) for row in ends),
        bill.seconds + sum(row["seconds"] for row in ends),
    )
