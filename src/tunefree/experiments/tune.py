"""Grid search for methods that need it, on samples held out of training, with its bill.

Trials are pruned by a rule that does not depend on which happened to finish first, so that any
number of workers, and an interrupted search taken up again, choose the same settings: a few trials
are played whole, and their median accuracy at each evaluation is what the others must reach.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeAlias

from tunefree import algorithms
from tunefree.algorithms.own import about_of
from tunefree.config import Config, build
from tunefree.core import stream
from tunefree.errors import ConfigError, FleetError
from tunefree.experiments import atomic_file
from tunefree.experiments.batch import PlannedRun, Result, plan, run_groups
from tunefree.experiments.compare import about_run, check_has_accuracy, with_seed
from tunefree.record import Row

Value: TypeAlias = float | str  # a number, or one of a few choices
Point: TypeAlias = tuple[tuple[str, Value], ...]  # one for each parameter of the grid
Grid: TypeAlias = Mapping[str, tuple[Value, ...]]

TUNED = "tuned.json"
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
        return statistics.fmean(late_mean(r.history, r.run.config.system.T) for r in self.results)

    @property
    def state(self) -> str:
        return next((r.state for r in self.results if r.state != "done"), "done")


class TuningResult(NamedTuple):
    """What the search found, and what it cost."""

    options: dict[str, object]
    point: Point  # those of them that were searched
    score: float
    grid: dict[str, tuple[Value, ...]]  # with the values it grew by
    edges: list[str]  # a sentence for each parameter whose best value has none beyond it
    trials: list[Trial]
    search: str = ""  # the mark of the search, as its trials have it

    @property
    def bill(self) -> dict[str, Any]:
        """All that all trials used up, pruned and diverged ones too, and what came of it."""
        ends = [r.history[-1] for trial in self.trials for r in trial.results if r.history]
        rounds = sum(int(row["t"]) + 1 for row in ends)
        costs = ("samples", "bits_up", "bits_down", "seconds")
        sums = {name: sum(row[name] for row in ends) for name in costs}
        mark = {"search": self.search} if self.search else {}
        return {"trials": len(self.trials), "rounds": rounds, **sums, "chosen": self.chosen, **mark}

    @property
    def chosen(self) -> dict[str, Value]:
        """Of the options, those that were searched."""
        return dict(self.point)


class Search:
    """The grid of a method, as it grows, and the trials of its points so far."""

    def __init__(self, config: Config, grid: Grid, folder: Path, mark: str = "") -> None:
        self.config, self._given, self._folder, self._mark = config, grid, folder, mark
        self.grid = {name: in_order(values) for name, values in grid.items()}
        self.points: list[Point] = [
            tuple(zip(grid, values, strict=True)) for values in product(*grid.values())
        ]
        self.trials: dict[Point, Trial] = {}

    def plan(self, point: Point, seed: int, floors: Mapping[int, float] = {}) -> PlannedRun:
        """The run that tries a point."""
        chosen = self.config.algorithm
        label = f"{chosen.name}:" + ",".join(f"{key}={text(value)}" for key, value in point)
        config = with_seed(at_point(self.config, point), seed)
        facts = {"search": self._mark} if self._mark else {}
        return plan(self._folder, label, config, "trial", facts, floors)

    @property
    def best(self) -> Trial | None:
        """The trial with the highest score.

        Of equal scores, the point with the fewest values at an edge of those that were tried: a
        value inside is as good, so the grid need not grow. Then the smaller values, in the order of
        the grid's parameters; for a choice, the one that the grid names first.
        """
        scored = [trial for trial in self.trials.values() if trial.score is not None]
        tried = tried_values(self.trials)
        return min(
            scored,
            key=lambda trial: (
                -(trial.score or 0.0),
                len(edges(trial.point, tried)),
                self._place(trial.point),
            ),
            default=None,
        )

    def _place(self, point: Point) -> tuple[float, ...]:
        """Orders points by their values."""
        return tuple(
            value if isinstance(value, float) else float(self.grid[name].index(value))
            for name, value in point
        )

    def grow(self, most: int | None = None) -> list[Point]:
        """New points, so many at most, beyond the edges of the grid on which the best one lies."""
        best, new = self.best, list[Point]()
        if best is None:
            return new
        for name, value in islice(self._beyond(best.point), most):
            self.grid[name] = in_order((*self.grid[name], value))
            new.append(tuple((k, value if k == name else v) for k, v in best.point))
        self.points += new
        return new

    def _beyond(self, point: Point) -> Iterator[tuple[str, float]]:
        """For each parameter at an edge, the next value on that side, if there may be one."""
        for name, value in point:
            values, given = numbers(self.grid[name]), numbers(self._given[name])
            if len(values) < 2 or value not in (values[0], values[-1]):
                continue
            assert isinstance(value, float)
            up = value == values[-1]
            added = sum(v > max(given) if up else v < min(given) for v in values)
            further = next_value(value, values[-2] if up else values[1])
            try:
                algorithms.check(self.config.algorithm.name, {name: further})
            except ConfigError:
                continue  # a weight above 1, for example
            if added < FURTHER:
                yield name, further

    def result(self) -> TuningResult | None:
        """What was found, if any trial came to its end."""
        best = self.best
        return best and TuningResult(
            options=self._options(best.point),
            point=best.point,
            score=best.score or 0.0,
            grid=self.grid,
            edges=edges(best.point, tried_values(self.trials)),
            trials=list(self.trials.values()),
            search=self._mark,
        )

    def _options(self, point: Point) -> dict[str, object]:
        return {**self.config.algorithm.options, **dict(point)}


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
) -> TuningResult:
    """Search the grid, and beyond an edge where the best value lies on it."""
    mark = search_mark(config, grid, seeds, budget, pruning, extend)
    check_folder(folder, config.algorithm.name, seeds, mark)
    config = on_held_out(config)
    check_has_accuracy(config)
    check_grid(config, grid)
    search = Search(config, grid, folder, mark)
    search_all([search], seeds, budget=budget, pruning=pruning, extend=extend, workers=workers)
    found = search.result()
    if found is None:
        refuse_to_choose(config.algorithm.name, list(search.trials.values()))
    return found


def on_held_out(config: Config) -> Config:
    """The same settings, scored on samples held out of training."""
    return replace(config, data=replace(config.data, validation=config.data.validation or SHARE))


def at_point(config: Config, point: Point) -> Config:
    """The settings with the steps of a point."""
    chosen = config.algorithm
    given = {**vars(chosen), **chosen.options, **dict(point)}
    given.pop("options")
    return replace(config, algorithm=build("algorithm", given))


def search_all(
    searches: Sequence[Search],
    seeds: Sequence[int],
    *,
    budget: int | None = None,
    pruning: bool = True,
    extend: bool = True,
    workers: int = 0,
) -> None:
    """Play all trials of these searches, side by side; each prunes by its own and grows alone."""
    whole, rest = list[Todo](), list[Todo]()
    for search in searches:
        mixed = stream(0, "tuning").permutation(len(search.points))[:budget]
        chosen = [search.points[place] for place in mixed]
        few = max(WHOLE, len(chosen) // 4) if pruning else len(chosen)
        whole.append((search, chosen[:few], {}))
        rest.append((search, chosen[few:], {}))
    play(whole, seeds, workers)
    floors = [medians(s.trials.values(), s.config.system.T) if pruning else {} for s in searches]
    play(
        [(s, points, own) for (s, points, _), own in zip(rest, floors, strict=True)], seeds, workers
    )
    most = math.inf if budget is None else budget
    while extend:
        grown = [
            (search, search.grow(1) if len(search.trials) < most else [], own)
            for search, own in zip(searches, floors, strict=True)
        ]
        if not any(points for _, points, _ in grown):
            return
        play(grown, seeds, workers)


Todo: TypeAlias = tuple[Search, Sequence[Point], Mapping[int, float]]  # points, and their floors


def play(todo: Sequence[Todo], seeds: Sequence[int], workers: int) -> None:
    """Try points; one that is pruned with its first seed is not played with the others."""
    points = [(search, point, floors) for search, each, floors in todo for point in each]
    first = run_groups([[s.plan(point, seeds[0], floors)] for s, point, floors in points], workers)
    others = [seeds[1:] if result.state == "done" else [] for (result,) in first]
    rest = run_groups(
        [
            [s.plan(p, seed) for seed in more]
            for (s, p, _), more in zip(points, others, strict=True)
        ],
        workers,
    )
    for (search, point, _), one, more in zip(points, first, rest, strict=True):
        search.trials[point] = Trial(point, one + more)


def search_mark(config: Config, grid: Grid, seeds: Sequence[int], *how: object) -> str:
    """Eight letters that differ wherever two searches do."""
    what = json.dumps([config.told_apart(), grid, list(seeds), how], sort_keys=True)
    return hashlib.sha256(what.encode()).hexdigest()[:8]


def check_folder(folder: Path, name: str, seeds: Sequence[int], mark: str) -> None:
    """Refuse a folder that holds what another search found, for its bill would be lost.

    An older file has no mark; the method and the seeds tell it from another as far as they can.
    """
    path = folder / TUNED
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        found = known["algorithm"], known["seeds"], known["bill"].get("search", mark)
    except (OSError, ValueError, KeyError, TypeError):
        return
    if found != (name, list(seeds), mark):
        raise ConfigError(
            f"'{path}' holds another search, of {found[0]}, and its bill; choose another folder "
            "(--out)"
        )


def refuse_to_choose(name: str, trials: Sequence[Trial]) -> NoReturn:
    """Say why nothing was found."""
    results = [result for trial in trials for result in trial.results]
    if failed := [result for result in results if result.state == "failed"]:
        raise FleetError(f"no trial came to its end: {failed[0].run.name} {failed[0].reason}")
    states = sorted({trial.state for trial in trials})
    raise ConfigError(
        f"no trial of {name} came to its end (they {', '.join(states)}); give smaller step sizes "
        "(--grid) or see the run files"
    )


def declared_grid(name: str) -> Grid:
    """The grid that a method brings along; one that says nothing of its steps has none."""
    about = about_of(algorithms.find(name))
    if about.steps and not about.grid:
        raise ConfigError(
            f"{about.title} has nothing to tune: its {', '.join(about.steps)} {about.origin}"
        )
    return about.grid


def check_grid(config: Config, grid: Grid) -> None:
    for name, values in grid.items():
        if len(set(values)) < len(values):
            raise ConfigError(f"--grid {name} names a value twice; leave one out")
        for value in values:
            algorithms.check(config.algorithm.name, {name: value}, config.algorithm.explicit_steps)


def late_mean(history: Sequence[Row], T: int, name: str = "accuracy") -> float:
    """The mean of a score over the evaluations in the last tenth of the rounds."""
    return statistics.fmean(
        row[name] for row in history if name in row and row["t"] + 1 > (1 - LAST) * T
    )


def medians(trials: Iterable[Trial], T: int) -> dict[int, float]:
    """At each evaluation, what half of these trials had reached with their first seed.

    A diverged one has nothing.
    """
    curves = [
        {int(row["t"]): row["accuracy"] for row in trial.results[0].scores} for trial in trials
    ]
    times = sorted({t for curve in curves for t in curve if t + 1 > GRACE * T})
    return {t: statistics.median(curve.get(t, 0.0) for curve in curves) for t in times}


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


def text(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def numbers(values: Iterable[Value]) -> list[float]:
    """Those of a grid that have an order, and so an edge."""
    return [value for value in values if isinstance(value, float)]


def in_order(values: Iterable[Value]) -> tuple[Value, ...]:
    each = tuple(values)
    return tuple(sorted(numbers(each))) or each


def tried_values(points: Iterable[Point]) -> dict[str, tuple[Value, ...]]:
    """The values of each parameter that were played; a budget may have left some out."""
    values: dict[str, set[Value]] = {}
    for point in points:
        for name, value in point:
            values.setdefault(name, set()).add(value)
    return {name: in_order(each) for name, each in values.items()}


def edges(point: Point, tried: Grid) -> list[str]:
    """A sentence for each parameter whose best value has none beyond it."""
    found = []
    for name, value in point:
        values = numbers(tried[name])
        if len(values) > 1 and value in (values[0], values[-1]):
            side = "largest" if value == values[-1] else "smallest"
            found.append(f"the best {name} = {text(value)} is the {side} that was tried")
    return found


def save(tuned: TuningResult, config: Config, seeds: Sequence[int], folder: Path) -> Path:
    """All of it as JSON, for `tunefree compare NAME@FILE`."""
    chosen = config.algorithm
    content: dict[str, Any] = {
        "algorithm": chosen.name,
        "options": {**algorithms.options_of(chosen), **tuned.options},
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
    path = folder / TUNED
    atomic_file.write(path, json.dumps(content, indent=1))
    return path
