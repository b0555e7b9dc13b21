"""Several methods on the same data, partition, model and seeds: their scores and costs."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tunefree.core import Algorithm, about, numbers
from tunefree.data import sources
from tunefree.errors import ConfigError
from tunefree.methods import registry
from tunefree.methods.own import about_of
from tunefree.record import Record, Row
from tunefree.record.summary import own_measures
from tunefree.search import methods
from tunefree.search.batch import PlannedRun, Result, plan, run_groups
from tunefree.search.methods import MethodSpec
from tunefree.settings import Settings


class Outcome(NamedTuple):
    """One method over all seeds; means are over the runs that finished."""

    method: str
    algorithm: str
    steps: Literal["from theory", "as published", "chosen", "tuned"]
    step_sizes: Mapping[str, float]
    given: list[str]  # those of them that the user set or a search found
    accuracy: float | None  # at the end, mean
    deviation: float | None  # of that, over seeds; None for fewer than two
    best: float | None  # the highest of a run, mean
    loss: float | None
    rounds: list[int | None]  # until the target accuracy, for each run
    bits_up: float | None
    bits_down: float | None
    samples: float | None
    virtual_seconds: float | None
    seconds: float | None
    tuning: Mapping[str, Any] | None  # the tuning bill, where it is known
    runs: list[dict[str, Any]]
    measures: Mapping[str, float | None] = {}  # the user's own, at the end, mean


def plan_methods(
    choices: Sequence[MethodSpec],
    base: Settings,
    seeds: Sequence[int],
    folder: Path,
    names: Sequence[str] = (),
) -> list[list[PlannedRun]]:
    """The runs of each method, one per seed."""
    labels = names or methods.labels(choices)
    check_once(labels, seeds)
    methods.check_seeds(choices, seeds)
    runs = []
    for method, label in zip(choices, labels, strict=True):
        settings, facts = methods.configure(method, base)
        runs.append([plan(folder, label, with_seed(settings, s), "method", facts) for s in seeds])
    return runs


def check_once(labels: Sequence[str], seeds: Sequence[int]) -> None:
    """Refuse a method or a seed that is given twice."""
    for kind, given in (("method", labels), ("seed", map(str, seeds))):
        for each, count in Counter(given).items():
            if count > 1:
                raise ConfigError(f"{kind} {each} is given {count} times; remove the repeats")


def with_seed(settings: Settings, seed: int) -> Settings:
    return replace(settings, seed=seed)


def compare(
    choices: Sequence[MethodSpec],
    base: Settings,
    seeds: Sequence[int],
    folder: Path,
    target: float | None = None,
    workers: int = 0,
    names: Sequence[str] = (),
) -> list[Outcome]:
    """Run every method with every seed and summarise each; `names` replace the labels."""
    groups = run_groups(plan_methods(choices, base, seeds, folder, names), workers)
    return [outcome(*each, target) for each in zip(choices, groups, strict=True)]


def outcome(
    method: MethodSpec,
    results: Sequence[Result],
    target: float | None = None,
    algo: Algorithm | None = None,
) -> Outcome:
    """Summarise the results of a method; `algo` is given if the user's own function made it."""
    done = [result for result in results if result.state == "done"]
    ends = [result.history[-1] for result in done]
    finals = [row["accuracy"] for row in ends if "accuracy" in row]
    settings, facts = results[0].run.settings, results[0].run.facts
    info = about_of(registry.find(method.name)) if algo is None else about(algo)
    values = step_sizes(settings, results, algo)
    own = bool(info.steps) and not set(settings.option) & set(info.steps)
    free: Literal["from theory", "as published"] = (
        "as published" if info.constant else "from theory"
    )
    return Outcome(
        method=results[0].run.label,
        algorithm=method.name,
        steps=free if own else "tuned" if method.tuned else "chosen",
        step_sizes=values,
        given=[name for name in values if name in settings.option],
        accuracy=mean(finals),
        deviation=statistics.stdev(finals) if len(finals) > 1 else None,
        best=mean([max(accuracies(result)) for result in done if accuracies(result)]),
        loss=mean([row["loss"] for row in ends if "loss" in row]),
        rounds=[rounds_to(target, result.history) for result in results],
        bits_up=mean([row["bits_up"] for row in ends]),
        bits_down=mean([row["bits_down"] for row in ends]),
        samples=mean([row["samples"] for row in ends]),
        virtual_seconds=mean([row["virtual_seconds"] for row in ends]),
        seconds=mean([row["seconds"] for row in ends]),
        tuning=facts.get("tuning"),  # type: ignore[arg-type]
        runs=[about_run(result) for result in results],
        measures={
            name: mean([row[name] for row in ends if name in row]) for name in own_measures(ends)
        },
    )


def about_run(result: Result) -> dict[str, Any]:
    last = result.scores[-1] if result.scores else {}
    return {
        "seed": result.run.settings.seed,
        "state": result.state,
        "reason": result.reason,
        "rounds": max(0, len(result.history) - 1),
        "accuracy": last.get("accuracy"),
        "loss": last.get("loss"),
        "run": str(result.run.path),
    }


def check_has_accuracy(settings: Settings) -> None:
    data_dir = settings.data_dir or None
    if sources.classes_of(settings.data, data_dir, **settings.data_option) is None:
        raise ConfigError(
            "has no classes and so no accuracy, which tune and sweep need",
            "use a data set with classes",
            setting="data",
            value=settings.data,
        )


def step_sizes(
    settings: Settings, results: Sequence[Result] = (), algo: Algorithm | None = None
) -> dict[str, float]:
    """The step sizes in a method's formulas or grid, and others that were set.

    With local epochs, K in the formulas is read from the first run file that has it.
    """
    if algo is None:
        K = settings.local_steps or next((K for K in map(recorded_steps, results) if K), 0)
        if not K:
            return {}
        known = replace(settings, local_steps=K, local_epochs=0)
        algo = registry.configure(settings, known.system, None)
    info, all_numbers = about(algo), numbers(algo)
    names = dict.fromkeys((*(info.steps or info.grid), *settings.option))
    values = {name: all_numbers[name] for name in names}
    return {name: value for name, value in values.items() if isinstance(value, float)}


def recorded_steps(result: Result) -> int:
    """K from the run's file; 0 if there is no file."""
    if not result.run.path.exists():
        return 0
    with closing(Record.open(result.run.path)) as record:
        return record.facts().system.get("K", 0)


def accuracies(result: Result) -> list[float]:
    return [row["accuracy"] for row in result.scores if "accuracy" in row]


def rounds_to(target: float | None, history: Sequence[Row]) -> int | None:
    """The first evaluated round that reached the target accuracy, if any."""
    if target is None:
        return None
    reached = (int(row["t"]) + 1 for row in history if row.get("accuracy", -1.0) >= target)
    return next(reached, None)


def mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None
