"""Grid search for methods that need it, scored on held-out samples, with its tuning bill.

Pruning does not depend on which trial finishes first, so any number of workers, and a search that
was interrupted and resumed, choose the same settings: a few trials run in full, and the others must
reach their median accuracy at each evaluation.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeAlias, cast

from tunefree.core import stream
from tunefree.derive import named
from tunefree.errors import ConfigError, FleetError
from tunefree.methods import registry
from tunefree.methods.own import about_of
from tunefree.privacy.promise import Privacy
from tunefree.privacy.records import guarantee
from tunefree.record import Row
from tunefree.search.batch import PlannedRun, Result, mark_of, plan, run_groups
from tunefree.search.comparison import about_run, classes_of, with_seed
from tunefree.settings import Settings

Value: TypeAlias = float | str  # a number, or one of a few choices
Point: TypeAlias = tuple[tuple[str, Value], ...]  # one for each parameter of the grid
Grid: TypeAlias = Mapping[str, tuple[Value, ...]]

TUNED = "tuned.json"
SHARE = 0.1  # of the training samples are held out, unless the settings say otherwise
WHOLE = 3  # at least so many trials run in full; the others are compared with them
GRACE = 1 / 3  # of the rounds; nothing is pruned before
LAST = 0.1  # of the rounds; a trial's score is its mean accuracy over them
FURTHER = 2  # a grid grows by at most so many values on each side


class Trial(NamedTuple):
    """One point of the grid, run with all seeds, or with the first alone if that did not finish."""

    point: Point
    results: list[Result]

    @property
    def score(self) -> float | None:
        """Mean validation accuracy over the last rounds; None unless every seed finished."""
        if any(result.state != "done" for result in self.results):
            return None
        return statistics.fmean(late_mean(r.history, r.run.settings.rounds) for r in self.results)

    @property
    def state(self) -> str:
        return next((r.state for r in self.results if r.state != "done"), "done")


class TuningResult(NamedTuple):
    """The best settings, all trials, and the tuning bill."""

    options: dict[str, object]
    point: Point  # the options that were searched
    score: float
    grid: dict[str, tuple[Value, ...]]  # including the values that it grew by
    edges: list[str]  # a sentence for each parameter whose best value is the outermost one
    trials: list[Trial]
    search: str = ""  # identifies the search; its trials store it too
    epsilon: float = 0.0  # of the whole search; 0 without privacy

    @property
    def bill(self) -> dict[str, Any]:
        """The tuning bill: the cost of all trials, pruned and diverged ones too, and the choice."""
        ends = [r.history[-1] for trial in self.trials for r in trial.results if r.history]
        rounds = sum(int(row["t"]) + 1 for row in ends)
        costs = ("samples", "bits_up", "bits_down", "seconds")
        sums = {name: sum(row[name] for row in ends) for name in costs}
        known = {"search": self.search, "epsilon": self.epsilon}
        found = {name: value for name, value in known.items() if value}
        return {"trials": len(self.trials), "rounds": rounds, **sums, "chosen": self.chosen} | found

    @property
    def chosen(self) -> dict[str, Value]:
        """The options that were searched, with their best values."""
        return dict(self.point)


class Search:
    """The grid of a method, which may grow, and the trials so far."""

    def __init__(self, settings: Settings, grid: Grid, folder: Path, mark: str = "") -> None:
        self.settings, self._given, self._folder, self._mark = settings, grid, folder, mark
        self.grid = {name: in_order(values) for name, values in grid.items()}
        self.points: list[Point] = [
            tuple(zip(grid, values, strict=True)) for values in product(*grid.values())
        ]
        self.trials: dict[Point, Trial] = {}
        self.floors: Mapping[int, float] = {}  # of trials with their first seed, by t

    def mixed(self, most: int | None) -> list[Point]:
        """The points, or so many of them, in random order, always the same."""
        return [self.points[i] for i in stream(0, "tuning").permutation(len(self.points))[:most]]

    def plan(self, point: Point, seed: int, floors: Mapping[int, float] = {}) -> PlannedRun:
        """The run of a point with a seed."""
        own = ",".join(f"{key}={text(value)}" for key, value in point)
        label = f"{self.settings.algorithm}:{own}"
        settings = with_seed(at_point(self.settings, point), seed)
        facts = {"search": self._mark} if self._mark else {}
        return plan(self._folder, label, settings, "trial", facts, floors)

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
        """At most `most` new points, beyond the edges of the grid where the best point is."""
        best, new = self.best, list[Point]()
        if best is None:
            return new
        for name, value in islice(self._beyond(best.point), most):
            self.grid[name] = in_order((*self.grid[name], value))
            new.append(tuple((k, value if k == name else v) for k, v in best.point))
        self.points += new
        return new

    def _beyond(self, point: Point) -> Iterator[tuple[str, float]]:
        """The next value beyond each edge that the point is at, if one is allowed."""
        for name, value, values in at_edges(point, self.grid):
            given = numbers(self._given[name])
            up = value == values[-1]
            added = sum(v > max(given) if up else v < min(given) for v in values)
            further = next_value(value, values[-2] if up else values[1])
            try:
                registry.check(self.settings.algorithm, {name: further})
            except ConfigError:
                continue  # a weight above 1, for example
            if added < FURTHER:
                yield name, further

    def result(self) -> TuningResult | None:
        """The result, if any trial finished."""
        best = self.best
        return best and TuningResult(
            options={**self.settings.option, **dict(best.point)},
            point=best.point,
            score=best.score or 0.0,
            grid=self.grid,
            edges=edges(best.point, tried_values(self.trials)),
            trials=list(self.trials.values()),
            search=self._mark,
        )


def tune(
    settings: Settings,
    grid: Grid,
    seeds: Sequence[int],
    folder: Path,
    *,
    budget: int | None = None,
    pruning: bool = True,
    extend: bool = True,
    workers: int = 0,
) -> TuningResult:
    """Search the grid, and beyond its edge where the best value is there.

    With privacy it does not grow, so that what the search spends is known beforehand.
    """
    mark = mark_of((settings, grid, list(seeds), budget, pruning, extend))
    check_folder(folder, settings.algorithm, seeds, mark)
    settings = on_held_out(settings)
    classes_of(settings)  # there must be some
    check_grid(settings, grid)
    search = Search(settings, grid, folder, mark)
    runs = len(search.mixed(budget)) * len(seeds)
    promise = Privacy.of(settings)
    epsilon = 0.0 if promise is None else price(promise, settings, runs)
    extend = extend and promise is None
    search_all([search], seeds, budget=budget, pruning=pruning, extend=extend, workers=workers)
    found = search.result()
    if found is None:
        refuse_to_choose(settings.algorithm, list(search.trials.values()))
    return found._replace(epsilon=epsilon)


def price(promise: Privacy, settings: Settings, runs: int) -> float:
    """The epsilon of so many private runs, all counted."""
    if promise.unit == "client":
        return promise.in_a(settings.system).of_runs(runs)
    _, objective, federation = named(settings)
    sizes = federation.parts.sizes
    algo = registry.configure(settings, settings.system_for(sizes), objective.shapes)
    given = algo, objective.theta0, promise.records or float(sizes.mean()), settings.batch_size
    return guarantee(promise, *given).of_runs(runs)


def on_held_out(settings: Settings) -> Settings:
    """The settings of a trial: scored on held-out samples of the clients, not on the test set.

    With privacy on the test set, which is public: scores on clients' samples would tell more than
    the noise allows.
    """
    share = settings.validation if settings.epsilon else settings.validation or SHARE
    return replace(settings, validation=share)


def at_point(settings: Settings, point: Point) -> Settings:
    """The settings with the values of a point."""
    values = dict(point)
    own = {key: values.pop(key) for key in registry.WRAPPED if key in values}
    return replace(settings, option={**settings.option, **values}, **cast("Any", own))


def search_all(
    searches: Sequence[Search],
    seeds: Sequence[int],
    *,
    budget: int | None = None,
    pruning: bool = True,
    extend: bool = True,
    workers: int = 0,
) -> None:
    """Run all trials of these searches at once; each search prunes and grows on its own."""
    mixed = [search.mixed(budget) for search in searches]
    few = [max(WHOLE, len(points) // 4) if pruning else len(points) for points in mixed]
    first = [points[:n] for points, n in zip(mixed, few, strict=True)]
    run_points(zip(searches, first, strict=True), seeds, workers)
    for search in searches if pruning else ():
        search.floors = medians(search.trials.values(), search.settings.rounds)
    rest = [points[n:] for points, n in zip(mixed, few, strict=True)]
    run_points(zip(searches, rest, strict=True), seeds, workers)
    most = math.inf if budget is None else budget
    while extend:
        grown = [(each, each.grow(1)) for each in searches if len(each.trials) < most]
        if not any(points for _, points in grown):
            return
        run_points(grown, seeds, workers)


def run_points(
    todo: Iterable[tuple[Search, Sequence[Point]]], seeds: Sequence[int], workers: int
) -> None:
    """Run the trials of points; one that does not finish with its first seed gets no others."""
    points = [(search, point) for search, each in todo for point in each]
    first = run_groups([[s.plan(p, seeds[0], s.floors)] for s, p in points], workers)
    others = [seeds[1:] if result.state == "done" else () for (result,) in first]
    planned = [
        [s.plan(p, seed) for seed in more] for (s, p), more in zip(points, others, strict=True)
    ]
    rest = run_groups(planned, workers)
    for (search, point), one, more in zip(points, first, rest, strict=True):
        search.trials[point] = Trial(point, one + more)


def check_folder(folder: Path, name: str, seeds: Sequence[int], mark: str) -> None:
    """Refuse a folder with the result of another search, whose tuning bill would be lost.

    An older file does not name its search and is identified by its method and seeds alone.
    """
    path = folder / TUNED
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        found = known["algorithm"], known["seeds"], known["bill"].get("search", mark)
    except (OSError, ValueError, KeyError, TypeError):
        return
    if found != (name, list(seeds), mark):
        raise ConfigError(
            f"'{path}' is from another search, of {found[0]}, and has its tuning bill; choose "
            "another folder (--out)"
        )


def refuse_to_choose(name: str, trials: Sequence[Trial]) -> NoReturn:
    """Raise an error that says why nothing was found."""
    results = [result for trial in trials for result in trial.results]
    if failed := [result for result in results if result.state == "failed"]:
        raise FleetError(f"no trial finished: {failed[0].run.name} failed: {failed[0].reason}")
    states = sorted({trial.state for trial in trials})
    raise ConfigError(
        f"no trial of {name} finished (all {' or '.join(states)}); give smaller step sizes (--grid)"
    )


def declared_grid(name: str) -> Grid:
    """The grid that a method declares; empty for a method that does not declare its steps."""
    about = about_of(registry.find(name))
    if about.steps and not about.grid:
        raise ConfigError(
            f"{about.title} has nothing to tune: its {', '.join(about.steps)} {about.origin}"
        )
    return about.grid


def check_grid(settings: Settings, grid: Grid) -> None:
    """Refuse values that are given twice, or that the method does not take."""
    for name, values in grid.items():
        if len(set(values)) < len(values):
            raise ConfigError(f"--grid {name} has the same value twice; remove one")
        for value in values:
            registry.check(settings.algorithm, {name: value}, settings.explicit_steps)


def late_mean(history: Sequence[Row], T: int, name: str = "accuracy") -> float:
    """The mean of a score over the evaluations in the last tenth of the rounds."""
    return statistics.fmean(
        row[name] for row in history if name in row and row["t"] + 1 > (1 - LAST) * T
    )


def medians(trials: Iterable[Trial], T: int) -> dict[int, float]:
    """The median accuracy of these trials with their first seed, at each evaluation.

    A diverged trial counts as 0.
    """
    curves = [
        {int(row["t"]): row["accuracy"] for row in trial.results[0].scores} for trial in trials
    ]
    times = sorted({t for curve in curves for t in curve if t + 1 > GRACE * T})
    return {t: statistics.median(curve.get(t, 0.0) for curve in curves) for t in times}


def next_value(value: float, neighbour: float) -> float:
    """The grid's next value: half-decades continue 1, 3, 10, ...; else the same factor again.

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
    """The numbers among these values; only they have an order, and so edges."""
    return [value for value in values if isinstance(value, float)]


def in_order(values: Iterable[Value]) -> tuple[Value, ...]:
    each = tuple(values)
    return tuple(sorted(numbers(each))) or each


def tried_values(points: Iterable[Point]) -> dict[str, tuple[Value, ...]]:
    """The values of each parameter that were tried; a budget may have skipped some."""
    values: dict[str, set[Value]] = {}
    for point in points:
        for name, value in point:
            values.setdefault(name, set()).add(value)
    return {name: in_order(each) for name, each in values.items()}


def at_edges(point: Point, grid: Grid) -> Iterator[tuple[str, float, list[float]]]:
    """The parameters that have the smallest or largest value of a grid at a point; all values."""
    for name, value in point:
        values = numbers(grid[name])
        if isinstance(value, float) and len(values) > 1 and value in (values[0], values[-1]):
            yield name, value, values


def edges(point: Point, tried: Grid) -> list[str]:
    """A sentence for each parameter whose best value is the outermost one tried."""
    return [
        f"the best {name} = {text(value)} is the {'largest' if value == values[-1] else 'smallest'}"
        " that was tried"
        for name, value, values in at_edges(point, tried)
    ]


def save(tuned: TuningResult, settings: Settings, seeds: Sequence[int], folder: Path) -> Path:
    """Save the result as JSON, for `tunefree compare NAME@FILE`."""
    content: dict[str, Any] = {
        "algorithm": settings.algorithm,
        "options": {**registry.options_of(settings), **tuned.options},
        "accuracy": tuned.score,
        "validation": on_held_out(settings).validation,
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
        "settings": settings.asdict(),
    }
    path = folder / TUNED
    write_file(path, json.dumps(content, indent=1))
    return path


def write_file(path: Path, text: str) -> None:
    """Write a file so that a reader finds the old text or the new one, whenever we are killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.new")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)
