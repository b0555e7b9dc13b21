"""Final accuracy against a step size, and the width of the range that works."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from tunefree.data import sources
from tunefree.derive import named_data
from tunefree.errors import ConfigError, unknown_name
from tunefree.methods import registry
from tunefree.methods.own import about_of, options_in
from tunefree.report.sweeps import WITHIN, Width, width
from tunefree.search.batch import Result, plan, run_groups
from tunefree.search.comparison import about_run, check_has_accuracy, mean, with_seed
from tunefree.settings import Settings

HALF_DECADES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)


class SweepPoint(NamedTuple):
    """A step size, its mean accuracy unless all runs failed, and its runs."""

    value: float
    accuracy: float | None
    results: list[Result]


class Sweep(NamedTuple):
    """A point for each value, and the width of the range that works."""

    over: str
    theory: float | None  # the value from the formula, for a method that has one
    points: list[SweepPoint]
    width: Width | None  # none where no value works


def sweep(
    settings: Settings,
    over: str,
    values: Sequence[float],
    seeds: Sequence[int],
    folder: Path,
    workers: int = 0,
) -> Sweep:
    """Run every value with every seed; a diverged run counts as accuracy 0."""
    check_has_accuracy(settings)
    name = settings.algorithm
    theory = check(name, over, values, with_seed(settings, seeds[0]))
    groups = []
    for value in sorted(values):
        options = {**settings.option, over: value}
        with_value = replace(settings, option=options, explicit_steps=theory is not None)
        facts = {"sweep": {"over": over, "value": value, "theory": theory}}
        label = f"{name}:{over}={value:g}"
        groups.append(
            [plan(folder, label, with_seed(with_value, seed), "sweep", facts) for seed in seeds]
        )
    results = run_groups(groups, workers)
    means = [mean([last_accuracy(r) for r in each if r.state != "failed"]) for each in results]
    points = [SweepPoint(*each) for each in zip(sorted(values), means, results, strict=True)]
    curve = [(value, accuracy) for value, accuracy, _ in points if accuracy is not None]
    if not curve:
        raise ConfigError(f"every run failed: {results[0][0].reason}")
    data_dir = settings.data_dir or None
    classes = sources.classes_of(settings.data, data_dir, **settings.data_option) or 1
    return Sweep(over, theory, points, width(curve, chance=1 / classes))


def check(name: str, over: str, values: Sequence[float], settings: Settings) -> float | None:
    """Refuse what cannot be swept; return the value from the formula, if there is one."""
    maker = registry.find(name)
    about, known = about_of(maker), options_in(maker)
    if over not in known:
        raise unknown_name("--over", over, about.steps or about.grid or known)
    if len(values) < 2 or len(set(values)) < len(values):
        raise ConfigError(f"--values {list(values)} must be two or more different step sizes")
    for value in values:
        registry.check(name, {over: value}, explicit_steps=True)
    return theory_of(name, over, settings)


def theory_of(name: str, step: str, settings: Settings) -> float | None:
    """The step size from a method's formula, if it has formulas."""
    maker = registry.find(name)
    if not about_of(maker).steps:
        return None
    sizes: Iterable[int] = ()
    if settings.local_epochs:
        _, federation = named_data(settings)
        sizes = federation.parts.sizes
    return cast(float, getattr(registry.build(maker, settings.system_for(sizes)), step))


def last_accuracy(result: Result) -> float:
    return result.history[-1]["accuracy"] if result.state == "done" else 0.0


def as_dict(done: Sweep, name: str) -> dict[str, Any]:
    return {
        "algorithm": name,
        "over": done.over,
        "theory": done.theory,
        "within": WITHIN,
        "width": done.width and {**done.width._asdict(), "decades": done.width.decades},
        "points": [
            {"value": value, "accuracy": accuracy, "runs": [about_run(each) for each in results]}
            for value, accuracy, results in done.points
        ],
    }
