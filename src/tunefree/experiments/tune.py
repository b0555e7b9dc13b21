"""Grid search for methods that need it, on samples held out of training, with its bill.

Trials are pruned by a rule that does not depend on which happened to finish first, so that any
number of workers, and an interrupted search taken up again, choose the same settings: a few trials
are played whole, and their median accuracy at each evaluation is what the others must reach.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tunefree import algorithms
from tunefree.config import Config
from tunefree.core import About, stream
from tunefree.errors import ConfigError, FleetError
from tunefree.experiments import atomic_file
from tunefree.experiments.batch import Result, plan, play
from tunefree.experiments.compare import about_run, check_has_accuracy, seeded

Point: TypeAlias = tuple[tuple[str, float], ...]  # a value for each parameter of the grid
Grid: TypeAlias = Mapping[str, tuple[float, ...]]

SHARE = 0.1  # of the training samples held out, where the settings say nothing
WHOLE = 3  # trials are played whole at least, before others are measured by them
GRACE = 1 / 3  # of the rounds, before which nothing is pruned
LAST = 0.1  # of the rounds: the mean accuracy over them is a trial's score
FURTHER = 2  # values at most by which a grid grows on one side


class Trial(NamedTuple):
    """One point of the grid, played with all seeds, or with the first alone if that was enough."""

    point: Point
    results: list[Result]

    @property
    def score(self) -> float | None:
        """Mean validation accuracy over the last rounds; none unless every seed came to its end."""
        if any(result.state != "done" for result in self.results):
            return None
        return statistics.fmean(final(result) for result in self.results)

    @property
    def state(self) -> str:
        return next((r.state for r in self.results if r.state != "done"), "done")


class Tuned(NamedTuple):
    """What the search found, and what it cost."""

    options: dict[str, object]
    score: float
    grid: dict[str, tuple[float, ...]]  # with the values it grew by
    edges: list[str]  # a sentence for each parameter whose best value has none beyond it
    trials: list[Trial]

    @property
    def bill(self) -> dict[str, Any]:
        """All that all trials used up, pruned and diverged ones too, and what came of it."""
        ends = [r.history[-1] for trial in self.trials for r in trial.results if r.history]
        rounds = sum(int(row["t"]) + 1 for row in ends)
        sums = {
            cost: sum(row[cost] for row in ends) for cost in ("samples", "bits_up", "bits_down")
        }
        seconds = sum(row["seconds"] for row in ends)
        chosen = {name: self.options[name] for name in self.grid}
        spent = {"trials": len(self.trials), "rounds": rounds, **sums, "seconds": seconds}
        return {**spent, "chosen": chosen}


class Search:
    """Plays points of the grid and remembers them."""

    def __init__(self, config: Config, seeds: Sequence[int], folder: Path, workers: int) -> None:
        self.config, self.seeds, self.folder, self.workers = config, seeds, folder, workers
        self.trials: dict[Point, Trial] = {}

    def play(self, points: Iterable[Point], floors: Mapping[int, float]) -> None:
        """Play new points; one that is pruned with its first seed is not played with the others."""
        new = [point for point in points if point not in self.trials]
        first = self._results(new, self.seeds[:1], floors)
        alive = [point for point in new if first[point][0].state == "done"]
        rest = self._results(alive, self.seeds[1:], {})
        for point in new:
            self.trials[point] = Trial(point, first[point] + rest.get(point, []))

    def _results(
        self, points: Sequence[Point], seeds: Sequence[int], floors: Mapping[int, float]
    ) -> dict[Point, list[Result]]:
        runs = {
            point: [
                plan(
                    *(self.folder, label(self.config, point), seeded(with_point, seed), "trial"),
                    floors=floors,
                )
                for seed in seeds
            ]
            for point in points
            for with_point in [at(self.config, point)]
        }
        results = play([run for each in runs.values() for run in each], self.workers)
        by_path = {result.planned.path: result for result in results}
        return {point: [by_path[run.path] for run in each] for point, each in runs.items()}

    def best(self, order: Sequence[Point]) -> Trial | None:
        """The best trial; of equals, the one that stands first in the grid."""
        ranked = sorted(self.trials.values(), key=lambda trial: order.index(trial.point))
        scored = [trial for trial in ranked if trial.score is not None]
        return max(scored, key=lambda trial: trial.score or 0.0, default=None)


def tune(
    config: Config,
    grid: Grid,
    seeds: Sequence[int],
    folder: Path,
    *,
    budget: int | None = None,
    pruning: bool = True,
    extend: bool = True,
    workers: int = 0,
) -> Tuned:
    """Search the grid, and beyond an edge where the best value lies on it."""
    config = replace(config, data=replace(config.data, validation=config.data.validation or SHARE))
    check_has_accuracy(config)
    check_grid(config, grid)
    points = [tuple(zip(grid, values, strict=True)) for values in product(*grid.values())]
    mixed = stream(0, "tuning").permutation(len(points))[: budget or len(points)]
    chosen = [points[place] for place in mixed]
    few = max(WHOLE, len(chosen) // 4) if pruning else len(chosen)

    search = Search(config, seeds, folder, workers)
    search.play(chosen[:few], {})
    floors = medians(search.trials.values(), config.system.T) if pruning else {}
    search.play(chosen[few:], floors)
    best = search.best(points)
    grown = {name: tuple(sorted(values)) for name, values in grid.items()}
    while extend and best is not None and len(search.trials) < (budget or math.inf):
        new = next(beyond(config, best.point, grid, grown), None)
        if new is None:
            break
        name, value = new
        grown[name] = tuple(sorted((*grown[name], value)))
        points.append(changed(best.point, name, value))
        search.play(points[-1:], floors)
        best = search.best(points)
    if best is None or best.score is None:
        results = [result for trial in search.trials.values() for result in trial.results]
        if failed := [result for result in results if result.state == "failed"]:
            raise FleetError(
                f"no trial came to its end: {failed[0].planned.name} {failed[0].reason}"
            )
        states = sorted({trial.state for trial in search.trials.values()})
        raise ConfigError(
            f"no trial of {config.algorithm.name} came to its end (they {', '.join(states)}); give "
            "smaller step sizes (--grid) or see the run files"
        )
    return Tuned(
        options={**config.algorithm.options, **dict(best.point)},
        score=best.score,
        grid=grown,
        edges=edges(best.point, tried(search.trials)),
        trials=list(search.trials.values()),
    )


def declared(name: str) -> Grid:
    """The grid that a method brings along."""
    about: About = algorithms.REGISTRY[name].about
    if not about.grid:
        raise ConfigError(
            f"{about.title} has nothing to tune: its {', '.join(about.steps)} follow from N, S, K "
            "and T"
        )
    return about.grid


def check_grid(config: Config, grid: Grid) -> None:
    for name, values in grid.items():
        if len(set(values)) < len(values):
            raise ConfigError(f"--grid {name} names a value twice; leave one out")
        for value in values:
            algorithms.check(config.algorithm.name, {name: value}, config.algorithm.explicit_steps)


def at(config: Config, point: Point) -> Config:
    options = {**config.algorithm.options, **dict(point)}
    return replace(config, algorithm=replace(config.algorithm, options=options))


def changed(point: Point, name: str, value: float) -> Point:
    return tuple((key, value if key == name else old) for key, old in point)


def label(config: Config, point: Point) -> str:
    return f"{config.algorithm.name}:" + ",".join(f"{key}={value:g}" for key, value in point)


def final(result: Result) -> float:
    """Mean accuracy over the evaluations in the last tenth of the rounds."""
    T = result.planned.config.system.T
    last = [row["accuracy"] for row in result.scores if row["t"] + 1 > (1 - LAST) * T]
    return statistics.fmean(last)


def medians(trials: Iterable[Trial], T: int) -> dict[int, float]:
    """At each evaluation, what half of these trials had reached with their first seed.

    A diverged one has nothing.
    """
    curves = [
        {int(row["t"]): row["accuracy"] for row in trial.results[0].scores} for trial in trials
    ]
    times = sorted({t for curve in curves for t in curve if t + 1 > GRACE * T})
    return {t: statistics.median(curve.get(t, 0.0) for curve in curves) for t in times}


def beyond(config: Config, point: Point, grid: Grid, grown: Grid) -> Iterator[tuple[str, float]]:
    """For each parameter at an edge, the next value on that side, if there may be one."""
    for name, value in point:
        values = grown[name]
        if len(values) < 2 or value not in (values[0], values[-1]):
            continue
        up = value == values[-1]
        added = sum(v > max(grid[name]) if up else v < min(grid[name]) for v in values)
        further = next_value(value, values[-2] if up else values[1])
        try:
            algorithms.check(config.algorithm.name, {name: further})
        except ConfigError:
            continue  # a weight above 1, for example
        if added < FURTHER:
            yield name, further


def next_value(value: float, neighbour: float) -> float:
    """The grid's next value: half-decades stay 1, 3, 10, ...; else the same factor again.

    >>> next_value(0.3, 0.1), next_value(0.001, 0.003), next_value(1.0, 0.5)
    (1.0, 0.0003, 2.0)
    """
    factor = value / neighbour
    lead = value / 10 ** math.floor(math.log10(value) + 1e-9)
    if 2.9 < max(factor, 1 / factor) < 3.4 and min(abs(lead - 1), abs(lead - 3)) < 1e-6:
        up = {1: 3.0, 3: 10 / 3}[round(lead)]
        down = {1: 0.3, 3: 1 / 3}[round(lead)]
        factor = up if factor > 1 else down
    return float(f"{value * factor:.2g}")


def tried(points: Iterable[Point]) -> dict[str, tuple[float, ...]]:
    """The values of each parameter that were played; a budget may have left some out."""
    values: dict[str, set[float]] = {}
    for point in points:
        for name, value in point:
            values.setdefault(name, set()).add(value)
    return {name: tuple(sorted(each)) for name, each in values.items()}


def edges(point: Point, played: Grid) -> list[str]:
    """A sentence for each parameter whose best value has none beyond it."""
    found = []
    for name, value in point:
        values = played[name]
        if len(values) > 1 and value in (values[0], values[-1]):
            side = "largest" if value == values[-1] else "smallest"
            found.append(f"the best {name} = {value:g} is the {side} that was tried")
    return found


def save(tuned: Tuned, config: Config, seeds: Sequence[int], folder: Path) -> Path:
    """All of it as JSON, for `tunefree compare NAME@FILE`."""
    chosen = config.algorithm
    compressor = {"compressor": chosen.compressor} if chosen.compressor else {}
    content: dict[str, Any] = {
        "algorithm": chosen.name,
        "options": {**tuned.options, **compressor},
        "accuracy": tuned.score,
        "validation": config.data.validation or SHARE,
        "seeds": list(seeds),
        "bill": tuned.bill,
        "edges": tuned.edges,
        "grid": tuned.grid,
        "trials": [
            {
                "options": dict(trial.point),
                "state": trial.state,
                "accuracy": trial.score,
                "runs": [about_run(result) for result in trial.results],
            }
            for trial in tuned.trials
        ],
        "settings": config.asdict(),
    }
    path = folder / "tuned.json"
    atomic_file.write(path, json.dumps(content, indent=1))
    return path
