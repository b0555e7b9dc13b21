"""Several methods on the same data, partition, model and seeds: their scores and costs."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from tunefree.data import sources
from tunefree.errors import ConfigError
from tunefree.methods import registry
from tunefree.methods.own import Maker, about_of, title_of
from tunefree.record import Facts, Row
from tunefree.record.facts import AS_PUBLISHED
from tunefree.record.summary import own_measures
from tunefree.run.keywords import spelled
from tunefree.search.batch import PlannedRun, Result, folder_of, plan, run_groups
from tunefree.search.method_spec import MethodSpec, check_seeds, configure, labels, parse_method
from tunefree.settings import Settings

MEANS = ("loss", "bits_up", "bits_down", "samples", "virtual_seconds", "seconds")

Method: TypeAlias = str | Maker  # PolarFL(), or NAME, NAME:key=value, NAME@tuned.json
Methods: TypeAlias = Sequence[Method] | Mapping[str, Method]


class Contender(NamedTuple):
    """A method and its name in the comparison."""

    label: str
    spec: MethodSpec
    make: Maker | None = None  # the user's own class or function


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


def compare(
    methods: Methods,
    settings: Settings,
    seeds: Sequence[int] = (0, 1, 2),
    folder: str | Path = "",
    *,
    target: float | None = None,
    workers: int = 0,
) -> list[Outcome]:
    """Train every method with every seed on data by name, several runs at once, each in its file.

    `tunefree.compare` does it on your own model and clients. Where runs exist already, they are
    finished.

    Args:
        methods: Each as on the command line, "polarfl", "fedavg:eta=0.1" or "fedavg@tuned.json"; a
            dict gives them names.
        settings: Those that the methods share, as `tunefree.search.settings` makes them.
        seeds: Each method is run once for each seed.
        folder: For the run files; by default one in runs/ with a name that follows from the call.
        target: Also count the rounds until this accuracy.
        workers: Runs at once; 0 is one per core.

    >>> from tempfile import TemporaryDirectory
    >>> from tunefree.search import settings
    >>> small = settings(data="digits", clients=5, rounds=2, local_steps=1)
    >>> with TemporaryDirectory() as folder:
    ...     rows = compare(["polarfl", "fedavg:eta=0.1"], small, [0], folder, workers=1)
    >>> [(row.method, row.steps) for row in rows]
    [('polarfl', 'from theory'), ('fedavg:eta=0.1', 'chosen')]
    """
    chosen = contenders(methods, seeds)
    for each in chosen:
        if each.make is not None:
            raise ConfigError(
                f"method {each.label!r} is your own, and worker processes know it by name only; "
                "give package.module:Name, or use tunefree.compare with your model and clients"
            )
    folder = folder_of(folder, "compare", chosen, seeds, settings)
    groups = run_groups([plan_method(each, settings, seeds, folder) for each in chosen], workers)
    return [outcome(each.spec, group, target) for each, group in zip(chosen, groups, strict=True)]


def contenders(methods: Methods, seeds: Sequence[int]) -> list[Contender]:
    """The methods with their names, checked: those that the user gave, or else their texts."""
    if isinstance(methods, str) or not methods:
        raise ConfigError(
            f"methods = {methods!r} must be a list of methods, such as ['polarfl', 'fedavg']"
        )
    values = list(methods.values()) if isinstance(methods, Mapping) else list(methods)
    specs, own = zip(*map(spec_of, values), strict=True)
    names = list(methods) if isinstance(methods, Mapping) else labels(specs)
    for kind, given in (("method", names), ("seed", map(str, seeds))):
        for each, count in Counter(given).items():
            if count > 1:
                raise ConfigError(f"{kind} {each} is given {count} times; remove the repeats")
    check_seeds(specs, seeds)
    return [Contender(*each) for each in zip(names, specs, own, strict=True)]


def spec_of(method: Method) -> tuple[MethodSpec, Maker | None]:
    """The name and the options of a method; of a user's own, its name and itself."""
    if isinstance(method, str):
        return parse_method(method), None
    options = spelled(method)
    if not options:
        return MethodSpec(title_of(method)), method
    name = str(options.pop("algorithm"))
    return MethodSpec(name, {key.removeprefix("option."): v for key, v in options.items()}), None


def plan_method(
    method: Contender, settings: Settings, seeds: Sequence[int], folder: Path
) -> list[PlannedRun]:
    """The runs of a method, one for each seed."""
    chosen, facts = configure(method.spec, settings)
    return [plan(folder, method.label, with_seed(chosen, s), "method", facts) for s in seeds]


def with_seed(settings: Settings, seed: int) -> Settings:
    """The settings with another seed.

    >>> with_seed(Settings(), 7).seed
    7
    """
    return replace(settings, seed=seed)


def outcome(method: MethodSpec, results: Sequence[Result], target: float | None = None) -> Outcome:
    """Summarise the runs of a method; its step sizes are those in the first run file."""
    done = [result for result in results if result.state == "done"]
    ends = [result.history[-1] for result in done]
    finals = column("accuracy", ends)
    costs: dict[str, Any] = {name: mean(column(name, ends)) for name in MEANS}
    facts = next((each.facts for each in results if each.facts != Facts()), Facts())
    given = results[0].run.settings.option
    grid = about_of(registry.find(facts.algorithm)).grid if facts.algorithm else facts.steps
    names = dict.fromkeys((*(facts.formulas or grid), *given))
    values = {name: facts.steps[name] for name in names if name in facts.steps}
    free: Literal["from theory", "as published"] = (
        "as published" if AS_PUBLISHED in facts.formulas.values() else "from theory"
    )
    return Outcome(
        method=results[0].run.label,
        algorithm=method.name,
        steps=free if facts.tuning_free else "tuned" if method.tuned else "chosen",
        step_sizes=values,
        given=[name for name in values if name in given],
        accuracy=mean(finals),
        deviation=statistics.stdev(finals) if len(finals) > 1 else None,
        best=mean([max(each) for r in done if (each := column("accuracy", r.history))]),
        rounds=[rounds_to(target, result.history) for result in results],
        tuning=facts.tuning or None,
        runs=[about_run(result) for result in results],
        measures={name: mean(column(name, ends)) for name in own_measures(ends)},
        **costs,
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


def classes_of(settings: Settings) -> int:
    """The classes of the data, without which there is no accuracy to tune or sweep by."""
    data_dir = settings.data_dir or None
    classes = sources.classes_of(settings.data, data_dir, **settings.data_option)
    if classes is None:
        raise ConfigError(
            "has no classes and so no accuracy, which tune and sweep need",
            "use a data set with classes",
            setting="data",
            value=settings.data,
        )
    return classes


def rounds_to(target: float | None, history: Sequence[Row]) -> int | None:
    """The first evaluated round that reached the target accuracy, if any."""
    if target is None:
        return None
    reached = (int(row["t"]) + 1 for row in history if row.get("accuracy", -1.0) >= target)
    return next(reached, None)


def column(name: str, rows: Sequence[Row]) -> list[float]:
    """The values of a score or a cost in the rows that have it."""
    return [row[name] for row in rows if name in row]


def mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None
