"""Runs grouped by method: those that differ only in the seed are one method, with one curve."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tunefree.record import Summary

MEASURES = {
    "accuracy": "{} accuracy",
    "loss": "{} loss",
    "train_loss": "training loss",
    "grad_norm": "gradient norm",
}
AXES = {
    "round": "rounds",
    "bits_up": "uplink bits, all clients",
    "bits_down": "downlink bits, all clients",
    "samples": "samples drawn, all clients",
    "virtual_seconds": "virtual time (s)",
    "seconds": "wall time (s)",
}
RUNNING = "eval_every grad_norm device fleet workers kernels commit_every out data_dir"
NO_EFFECT = [*RUNNING.split(), "algorithm", "seed"]  # on a result, or shown by its name and seed
POINTS = 400  # of a curve; more cannot be distinguished on paper
Content: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """One line of a figure: a method with its settings, run once for each seed."""

    label: str
    runs: Sequence[Summary]

    @property
    def judged(self) -> Sequence[Summary]:
        """The runs whose last score counts: finished ones, or else those in progress."""
        done = [run for run in self.runs if run.state == "done"]
        return done or [run for run in self.runs if run.state != "diverged"]

    @property
    def state(self) -> str:
        """The state of all runs, or how many are in each state."""
        states = [run.state for run in self.runs]
        if len(set(states)) == 1:
            return states[0]
        return ", ".join(f"{states.count(s)} {s}" for s in sorted(set(states)))

    def final(self, measure: str) -> Content | None:
        """Mean and standard deviation of the last scores over the seeds."""
        ends = [last for run in self.judged if (last := run.last(measure)) is not None]
        if not ends:
            return None
        spread = statistics.stdev(ends) if len(ends) > 1 else None
        return {"mean": statistics.fmean(ends), "sd": spread, "seeds": len(ends)}

    def curve(self, measures: Iterable[str], axes: Iterable[str]) -> dict[str, Any]:
        """Mean, lowest and highest over the seeds that were measured at the same rounds."""
        names = list(measures)
        at: dict[int, list[Mapping[str, float]]] = {}
        for run in self.runs:
            for row in run.rows:
                if any(name in row for name in names):
                    at.setdefault(int(row["t"]) + 1, []).append(row)
        rounds = thin(sorted(at))
        groups = [at[t] for t in rounds]
        x = {
            axis: rounds
            if axis == "round"
            else [short(statistics.fmean(row[axis] for row in rows)) for rows in groups]
            for axis in axes
            if axis == "round" or any(row[axis] for rows in groups for row in rows)
        }
        y = {}
        for name in names:
            values = [[row[name] for row in rows if name in row] for rows in groups]
            if any(values):
                y[name] = {
                    "mean": [short(statistics.fmean(v)) if v else None for v in values],
                    "low": [short(min(v)) if v else None for v in values],
                    "high": [short(max(v)) if v else None for v in values],
                }
        return {"x": x, "y": y, "seeds_at": [len(rows) for rows in groups]}


def group(runs: Sequence[Summary]) -> list[Method]:
    """The methods, in the order of their first runs.

    Runs of one name that differ in options, data, model or system are separate methods, with the
    difference in their labels, because their scores must not be averaged. If all settings are the
    same, what the caller brought decides.
    """
    named = [name_of(run) for run in runs]
    methods: dict[str, list[Summary]] = {}
    for label, equal in together(runs, named, [relevant(run) for run in runs]).items():
        for own, same in together(equal, [label] * len(equal), map(own_steps, equal)).items():
            methods |= separated(own, same)
    return [Method(*item) for item in methods.items()]


def separated(label: str, runs: Sequence[Summary]) -> dict[str, list[Summary]]:
    """The runs grouped by what the caller brought: model, data, loss, algorithm.

    A run of the command line makes its model and its partition from its seed, and so may runs that
    the user gave one name: these are separated only if one seed has two models or data sets.
    """
    seeded = all(run.facts.by_name or run.facts.label for run in runs)
    marked = [run for run in runs if brought(run)]
    distinct = {(run.facts.seed, *brought(run).items()) for run in marked}
    if seeded and len(distinct) == len({run.facts.seed for run in marked}):
        return {label: list(runs)}
    return together(runs, [label] * len(runs), map(brought, runs))


def own_steps(run: Summary) -> dict[str, Hashable]:
    """The step sizes of an algorithm from the caller's own function, which has no options."""
    return {} if run.facts.algorithm else dict(run.facts.steps)


def brought(run: Summary) -> dict[str, Hashable]:
    """Short fingerprints of what the caller brought; empty if the file has none."""
    facts, identity = run.facts, run.facts.identity
    if facts.deployed:
        return {}
    data, more = ["clients' data"], dict[str, list[str]]()
    if not facts.by_name:  # a command line run's settings identify the rest
        data, more = [*data, "inputs", "test set"], {"loss": ["loss"]}
    if not facts.algorithm or ":" in facts.algorithm:
        more |= {"algorithm": ["algorithm"]}
    parts = {"model": ["first model"], "data": data, **more}
    marks = {
        name: [identity[key] for key in keys if key in identity] for name, keys in parts.items()
    }
    found: dict[str, Hashable] = {}
    for name, values in marks.items():
        if values:
            text = "".join(v if isinstance(v, str) else json.dumps(v) for v in values)
            found[name] = text if name == "loss" else hashlib.sha256(text.encode()).hexdigest()[:6]
    return found


def name_of(run: Summary) -> str:
    """The label that the user chose, or else the method."""
    return run.facts.label or run.title


def once_each(runs: Sequence[Summary]) -> list[Summary]:
    """One run for each seed of a method or of a swept value, however often it was run.

    It is the finished one, or else the one with the most rounds. Trials all count, because each has
    its cost. Runs of `train` are the same if their model and data are; runs of a deployment are
    never known to be the same.
    """
    best: dict[Hashable, Summary] = {}
    for place, run in enumerate(runs):
        settings, marks = settings_of(run), frozenset(brought(run).items())
        same: Hashable = place if settings is None else (settings, marks)
        known = best.setdefault(same, run)
        if (run.state == "done", run.rounds) > (known.state == "done", known.rounds):
            best[same] = run
    return list(best.values())


def settings_of(run: Summary) -> Hashable:
    """Role, name, settings and seed; None if they do not identify a run."""
    facts = run.facts
    if facts.deployed or facts.seed is None or facts.role == "trial":
        return None
    settings = relevant(run) | own_steps(run)
    return facts.role, name_of(run), frozenset(settings.items()), facts.seed


def measures_of(runs: Iterable[Summary]) -> dict[str, str]:
    """The measures of these runs, our own first, and their names."""
    all_runs = list(runs)
    samples = "validation" if any(run.facts.validation for run in all_runs) else "test"
    found = dict.fromkeys(measure for run in all_runs for measure in run.measures)
    ours = {measure: name.format(samples) for measure, name in MEASURES.items() if measure in found}
    return ours | {measure: measure for measure in found if measure not in ours}


def together(
    runs: Sequence[Summary], names: Sequence[str], described: Iterable[Mapping[str, Hashable]]
) -> dict[str, list[Summary]]:
    """Label -> runs; a label is the name and the settings in which runs of that name differ."""
    settings = list(described)
    seen: dict[str, dict[str, set[Hashable]]] = {}
    for name, own in zip(names, settings, strict=True):
        for key, value in own.items():
            seen.setdefault(name, {}).setdefault(key, set()).add(value)
    everywhere = Counter(names)
    having = Counter((n, key) for n, own in zip(names, settings, strict=True) for key in own)
    groups: dict[str, list[Summary]] = {}
    for name, run, own in zip(names, runs, settings, strict=True):
        differing = [
            key
            for key in sorted(own)
            if len(seen[name][key]) > 1 or having[name, key] < everywhere[name]
        ]
        parts = [name, *(f"{shown_key(key)} = {own[key]}" for key in differing)]
        groups.setdefault(", ".join(parts), []).append(run)
    return groups


def relevant(run: Summary) -> dict[str, Hashable]:
    """The settings that can change a result, without the seed."""
    return {key: value for key, value in run.facts.values.items() if key not in NO_EFFECT}


def shown_key(key: str) -> str:
    """The last part of a key, which is enough for a reader.

    >>> shown_key("option.eta"), shown_key("per_round")
    ('eta', 'per_round')
    """
    return key.rpartition(".")[2]


def thin(rounds: Sequence[int]) -> list[int]:
    """At most POINTS of them, evenly spaced, including the first and the last."""
    if len(rounds) <= POINTS:
        return list(rounds)
    return [rounds[i * (len(rounds) - 1) // (POINTS - 1)] for i in range(POINTS)]


def short(value: float) -> float:
    """Six digits; whole numbers stay whole, as far as floats are exact."""
    whole = abs(value) <= 2**53 and float(value).is_integer()
    return int(value) if whole else float(f"{value:.6g}")
