"""The scores of tasks: accuracy with spread, costs to a target, and performance profiles.

The target of a task is the test accuracy of its best tuned method, mean over seeds. So the best
tuned method is chosen on the test set, which favours it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple, TypeAlias

Stored: TypeAlias = Mapping[str, Any]  # a task, or a method on it, as it is stored
Word = Literal["ahead", "level", "behind"]

OURS = "polarfl"
ROUNDING = 1e-4  # of the accuracies in a curve
CLOSE = 0.02  # below the target; the profile of rounds counts until there
RATIOS = tuple(1 + 0.02 * step for step in range(151))  # of errors, in their profile
TIMES = tuple(2 ** (step / 8) for step in range(65))  # of rounds, in theirs


class Cost(NamedTuple):
    """What reaching a target took; infinite if it was not reached."""

    rounds: float
    bits: float
    seconds: float

    def with_bill(self, bill: Mapping[str, float]) -> Cost:
        return Cost(
            self.rounds + bill["rounds"],
            self.bits + bill["bits"],
            self.seconds + bill["seconds"],
        )


class Score(NamedTuple):
    """A method on a task."""

    method: str
    tuned: bool
    accuracy: float
    spread: float
    diverged: int
    trials: int
    cost: Cost  # until the best tuned method's accuracy
    whole_cost: Cost  # the same plus its tuning bill


class Standing(NamedTuple):
    """PolarFL against the best tuned method of a task."""

    task: str
    held_out: bool
    word: Word
    ours: Score
    best: Score
    ahead: float  # mean over seeds of the difference in accuracy
    error: float  # its standard error


def is_comparable(task: Stored) -> bool:
    """Whether a task has a tuned method to compare with."""
    return any(method["tuned"] for method in task["methods"])


def best_tuned(task: Stored) -> Stored:
    """The tuned method with the highest mean accuracy."""
    tuned = [method for method in task["methods"] if method["tuned"]]
    return max(tuned, key=lambda method: fmean(method["accuracy"]))


def target_of(task: Stored) -> float:
    return fmean(best_tuned(task)["accuracy"])


def scores(task: Stored) -> list[Score]:
    """The score of every method of a task, in the stored order."""
    target = target_of(task)
    return [score(method, target) for method in task["methods"]]


def score(method: Stored, target: float) -> Score:
    finals, cost = method["accuracy"], cost_to(method, target)
    return Score(
        method=method["method"],
        tuned=method["tuned"],
        accuracy=fmean(finals),
        spread=stdev(finals) if len(finals) > 1 else 0.0,
        diverged=sum(state != "done" for state in method["states"]),
        trials=method["bill"]["trials"],
        cost=cost,
        whole_cost=cost.with_bill(method["bill"]),
    )


def cost_to(method: Stored, target: float) -> Cost:
    """The cost at the first evaluation whose mean over seeds reaches the target."""
    by_round: dict[int, list[Sequence[float]]] = {}
    for curve in method["curves"]:
        for row in curve:
            by_round.setdefault(row[0], []).append(row)
    for at, rows in sorted(by_round.items()):
        reached = sum(row[1] for row in rows) / len(method["curves"])  # a diverged run counts as 0
        if reached >= target - ROUNDING:
            return Cost(at, fmean(row[2] for row in rows), fmean(row[3] for row in rows))
    return Cost(math.inf, math.inf, math.inf)


def standing(task: Stored) -> Standing | None:
    """PolarFL on a task: ahead or behind by more than a standard error over seeds, or level."""
    mine = next((method for method in task["methods"] if method["name"] == OURS), None)
    if mine is None or not is_comparable(task):
        return None
    best, target = best_tuned(task), target_of(task)
    gaps = [a - b for a, b in zip(mine["accuracy"], best["accuracy"], strict=True)]
    ahead = fmean(gaps)
    error = stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.inf
    word: Word = "level" if abs(ahead) <= error else "ahead" if ahead > 0 else "behind"
    return Standing(
        task["task"], task["held_out"], word, score(mine, target), score(best, target), ahead, error
    )


def standings(tasks: Sequence[Stored]) -> list[Standing]:
    return [found for task in tasks if (found := standing(task))]


def error_profile(tasks: Sequence[Stored]) -> dict[str, list[float]]:
    """For each method the share of tasks in which its error is within a ratio of the lowest."""
    ratios: dict[str, list[float]] = {}
    for task in synchronous(tasks):
        errors = {m["name"]: 1 - fmean(m["accuracy"]) for m in task["methods"]}
        least = max(min(errors.values()), 1e-3)
        for name, error in errors.items():
            ratios.setdefault(name, []).append(error / least)
    return profile(ratios, RATIOS, tasks)


def round_profile(tasks: Sequence[Stored]) -> dict[str, list[float]]:
    """The same for rounds, tuning included, until `CLOSE` to the best tuned accuracy."""
    ratios: dict[str, list[float]] = {}
    for task in synchronous(tasks):
        target = target_of(task) - CLOSE
        costs = {m["name"]: whole_rounds(m, target) for m in task["methods"]}
        least = min(costs.values())
        for name, rounds in costs.items():
            ratios.setdefault(name, []).append(rounds / least if rounds < math.inf else math.inf)
    return profile(ratios, TIMES, tasks)


def whole_rounds(method: Stored, target: float) -> float:
    return cost_to(method, target).with_bill(method["bill"]).rounds


def synchronous(tasks: Sequence[Stored]) -> list[Stored]:
    """The tasks of the profiles: those that all of their methods can run."""
    return [task for task in tasks if is_comparable(task) and task["kind"] == "synchronous"]


def profile(
    ratios: Mapping[str, Sequence[float]], limits: Sequence[float], tasks: Sequence[Stored]
) -> dict[str, list[float]]:
    """The share of tasks within each limit; a task that a method did not run is not within it."""
    count = len(synchronous(tasks))
    return {
        name: [sum(value <= limit + 1e-9 for value in values) / count for limit in limits]
        for name, values in ratios.items()
    }
