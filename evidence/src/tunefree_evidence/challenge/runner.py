"""Running a task: train its start, tune the methods that need it, run every method and seed.

Each task has a folder of run files, so that an interrupted challenge resumes, and a method that is
added later runs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias

from tunefree import Schedule
from tunefree.data import describe, load
from tunefree.errors import ConfigError, FleetError
from tunefree.record import Row
from tunefree.search import (
    Result,
    Settings,
    at_point,
    check_grid,
    parse_method,
    plan,
    run_all,
    run_groups,
    with_seed,
)
from tunefree.search import configure as with_method
from tunefree.search import settings as settings_of
from tunefree_evidence.challenge import tasks
from tunefree_evidence.challenge.halving import Bill, Found, Space, halve, points_of
from tunefree_evidence.challenge.methods import (
    TRIALS,
    TUNING_SEED,
    Entry,
    check_names,
    entries,
    why_not,
)
from tunefree_evidence.challenge.tasks import Scale, Task

Stored: TypeAlias = dict[str, Any]  # a task, or a method on it, as it is stored
Log: TypeAlias = Callable[[str], None]


class Order(NamedTuple):
    """What is asked for."""

    tasks: Sequence[Task]
    scale: Scale
    folder: Path
    own: Sequence[str] = ()  # methods in addition to those of the suite
    only: Sequence[str] = ()  # of the suite only these; empty: all
    seeds: Sequence[int] = ()  # empty: those of the size
    trials: int = 0  # 0: those of the size
    workers: int = 0

    @property
    def of_scores(self) -> tuple[int, ...]:
        return tuple(self.seeds) or tasks.SEEDS[self.scale]

    @property
    def budget(self) -> int:
        return self.trials or TRIALS[self.scale]


def run_tasks(order: Order, log: Log) -> Iterator[Stored]:
    """Every task in turn; one that cannot run is reported, and the others continue."""
    if TUNING_SEED in order.of_scores:
        raise ConfigError(
            f"--seeds {TUNING_SEED} is the seed that methods are tuned with; score them on others"
        )
    check_names(order.own, order.only)
    for number, task in enumerate(order.tasks, 1):
        log(f"{task.name}: task {number} of {len(order.tasks)}")
        try:
            yield run_task(order, task, log)
        except (ConfigError, FleetError) as error:
            log(f"  {task.name} was not run: {error}")
            yield {"task": task.name, "failed": str(error), "methods": []}


def run_task(order: Order, task: Task, log: Log) -> Stored:
    """One task, with every method that can run it."""
    folder = order.folder / order.scale / task.name
    base = configure(task, order.scale)
    if classes_of(base) is None:
        raise ConfigError("has no classes and so no accuracy", setting="data", value=base.data)
    if task.trained:
        base = train_start(task, base, folder)
    runnable = list[Entry]()
    for entry in entries(task.kind, order.own, order.only):
        if reason := why_not(entry, base):
            log(f"  {entry.method} is skipped: {reason}")
        else:
            runnable.append(entry)
    found = tune(order, runnable, base, folder, log)
    chosen, scored = list[tuple[Entry, Found | None]](), list[Settings]()
    for entry in runnable:
        settings, _ = with_method(parse_method(entry.method), base)
        if entry.grid and entry.method not in found:
            log(f"  {entry.method}: no trial finished")
            continue
        tuned = found.get(entry.method)
        chosen.append((entry, tuned))
        scored.append(on_test_set(at_point(settings, tuned.point) if tuned else settings))
    log(f"  {len(chosen)} methods with {len(order.of_scores)} seeds")
    runs = [
        [plan(folder, entry.method, with_seed(each, seed)) for seed in order.of_scores]
        for (entry, _), each in zip(chosen, scored, strict=True)
    ]
    results = run_groups(runs, order.workers)
    return {
        "task": task.name,
        "kind": task.kind,
        "held_out": task.held_out,
        "words": tasks.in_words(task, base),
        "rounds": base.rounds,
        "seeds": list(order.of_scores),
        "trials": order.budget,
        "start": start_accuracy(results),
        "methods": [
            about_method(entry, tuned, each)
            for (entry, tuned), each in zip(chosen, results, strict=True)
        ],
    }


def configure(task: Task, scale: Scale) -> Settings:
    """The settings that all methods share."""
    keys = tasks.settings(task, scale)
    base = settings_of(None, **keys)
    return replace(base, eval_every=every(base.rounds, task.evaluations))


def on_test_set(settings: Settings) -> Settings:
    """The same settings with all training samples: a task's held-out share is for trials only."""
    return replace(settings, validation=0.0)


def every(rounds: int, evaluations: int) -> int:
    return max(1, rounds // evaluations)


def classes_of(base: Settings) -> int | None:
    source = describe(base.data)
    return source.classes if source else load(base.data, None, **base.data_option).classes


def train_start(task: Task, base: Settings, folder: Path) -> Settings:
    """The same settings from a model that FedAvg has trained on iid clients."""
    rounds = min(task.trained, base.rounds)
    first = replace(
        base,
        clients=10,
        per_round=10,
        rounds=rounds,
        sampling="uniform",
        algorithm="fedavg",
        option={"eta": 0.1},
        compressor="",
        decay="none",
        weighting="uniform",
        partition="iid",
        lora=0,
        seed=TUNING_SEED,
        eval_every=rounds,
        **Schedule().as_settings(),
    )
    run = plan(folder, "start", first)
    (result,) = run_all([run])
    if result.state != "done":
        raise FleetError(f"the start of {task.name} was not trained: {result.outcome}")
    return settings_of(**{**base.asdict(), "start": str(run.path)})


def tune(
    order: Order, runnable: Sequence[Entry], base: Settings, folder: Path, log: Log
) -> Mapping[str, Found]:
    """Tune the methods that need it, all at once."""
    spaces: dict[str, Space] = {}
    for entry in runnable:
        if entry.grid:
            settings, _ = with_method(parse_method(entry.method), base)
            check_grid(settings, entry.grid)
            spaces[entry.method] = Space(settings, points_of(entry.grid, order.budget))
    if not spaces:
        return {}
    log(f"  tuning {len(spaces)} methods, at most {order.budget} points each")
    return halve(spaces, folder / "trials", TUNING_SEED, order.workers)


def about_method(entry: Entry, tuned: Found | None, results: Sequence[Result]) -> Stored:
    """How a method did on a task; a diverged run has accuracy 0."""
    bill = tuned.bill if tuned else Bill()
    return {
        "method": entry.method,
        "name": parse_method(entry.method).name,
        "tuned": bool(entry.grid),
        "chosen": dict(tuned.point) if tuned else {},
        "bill": bill._replace(seconds=round(bill.seconds, 1))._asdict(),
        "accuracy": [final_accuracy(result) for result in results],
        "states": [result.state for result in results],
        "curves": [curve(result.history) for result in results],
    }


def final_accuracy(result: Result) -> float:
    done = result.state == "done" and result.scores
    return round(result.scores[-1]["accuracy"], 5) if done else 0.0


def curve(history: Sequence[Row]) -> list[list[float]]:
    """Round, accuracy, bits (up and down) and seconds at every evaluation."""
    return [
        [
            int(row["round"]),
            round(row["accuracy"], 4),
            int(row["bits_up"] + row["bits_down"]),
            round(row["seconds"], 2),
        ]
        for row in history
        if "accuracy" in row
    ]


def start_accuracy(results: Sequence[Sequence[Result]]) -> float:
    """The mean accuracy of the initial models."""
    return round(fmean(each.scores[0]["accuracy"] for each in results[0] if each.scores), 4)
