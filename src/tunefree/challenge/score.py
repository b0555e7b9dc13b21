"""What the played tasks say: accuracy with spread, costs to a target, and a performance profile.

The target of a task is what its best tuned method reaches on the test set, mean over seeds. Which
tuned method is the best is thus seen on the test set, in its favour.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple, TypeAlias

Played: TypeAlias = Mapping[str, Any]
Word = Literal["ahead", "level", "behind"]

OURS = "polarfl"
ROUNDING = 1e-4  # of the accuracies in a curve
CLOSE = 0.02  # below the target: near enough for the profile of rounds
RATIOS = tuple(1 + 0.02 * step for step in range(151))  # of errors, in the profile
TIMES = tuple(2 ** (step / 8) for step in range(65))  # of rounds


class Cost(NamedTuple):
    """What it took to reach a target; infinite where it was not reached."""

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
    whole_cost: Cost  # the same and its tuning bill


class Standing(NamedTuple):
    """Ours against the best tuned method of a task."""

    task: str
    held_out: bool
    word: Word
    ours: Score
    best: Score
    ahead: float  # mean of the differences, seed by seed
    error: float  # its standard error


def is_played(task: Played) -> bool:
    """Whether a task has something to be compared."""
    return any(method["tuned"] for method in task["methods"])


def best_tuned(task: Played) -> Played:
    """The tuned method with the highest mean accuracy."""
    tuned = [method for method in task["methods"] if method["tuned"]]
    return max(tuned, key=lambda method: fmean(method["accuracy"]))


def target_of(task: Played) -> float:
    return fmean(best_tuned(task)["accuracy"])


def scores(task: Played) -> list[Score]:
    """Every method of a task, in the order in which they stand."""
    target = target_of(task)
    return [score(method, target) for method in task["methods"]]


def score(method: Played, target: float) -> Score:
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


def cost_to(method: Played, target: float) -> Cost:
    """What had been spent at the first evaluation whose mean over seeds has the target."""
    by_round: dict[int, list[Sequence[float]]] = {}
    for curve in method["curves"]:
        for row in curve:
            by_round.setdefault(row[0], []).append(row)
    for at, rows in sorted(by_round.items()):
        reached = sum(row[1] for row in rows) / len(method["curves"])  # a diverged run adds nothing
        if reached >= target - ROUNDING:
            return Cost(at, fmean(row[2] for row in rows), fmean(row[3] for row in rows))
    return Cost(math.inf, math.inf, math.inf)


def standing(task: Played) -> Standing | None:
    """Ours on a task: ahead or behind by more than a standard error over seeds, or level."""
    mine = next((method for method in task["methods"] if method["name"] == OURS), None)
    if mine is None or not is_played(task):
        return None
    best, target = best_tuned(task), target_of(task)
    gaps = [a - b for a, b in zip(mine["accuracy"], best["accuracy"], strict=True)]
    ahead = fmean(gaps)
    error = stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.inf
    word: Word = "level" if abs(ahead) <= error else "ahead" if ahead > 0 else "behind"
    return Standing(
        task["task"], task["held_out"], word, score(mine, target), score(best, target), ahead, error
    )


def standings(played: Sequence[Played]) -> list[Standing]:
    return [found for task in played if (found := standing(task))]


def error_profile(played: Sequence[Played]) -> dict[str, list[float]]:
    """For each method the share of tasks in which its error is at most a ratio of the least."""
    ratios: dict[str, list[float]] = {}
    for task in synchronous(played):
        errors = {m["name"]: 1 - fmean(m["accuracy"]) for m in task["methods"]}
        least = max(min(errors.values()), 1e-3)
        for name, error in errors.items():
            ratios.setdefault(name, []).append(error / least)
    return profile(ratios, RATIOS, played)


def round_profile(played: Sequence[Played]) -> dict[str, list[float]]:
    """The same of rounds, tuning included, until `CLOSE` to the best tuned method's accuracy."""
    ratios: dict[str, list[float]] = {}
    for task in synchronous(played):
        target = target_of(task) - CLOSE
        costs = {m["name"]: whole_rounds(m, target) for m in task["methods"]}
        least = min(costs.values())
        for name, rounds in costs.items():
            ratios.setdefault(name, []).append(rounds / least if rounds < math.inf else math.inf)
    return profile(ratios, TIMES, played)


def whole_rounds(method: Played, target: float) -> float:
    return cost_to(method, target).with_bill(method["bill"]).rounds


def synchronous(played: Sequence[Played]) -> list[Played]:
    """The tasks that all methods of the profiles play."""
    return [task for task in played if is_played(task) and task["kind"] == "synchronous"]


def profile(
    ratios: Mapping[str, Sequence[float]], limits: Sequence[float], played: Sequence[Played]
) -> dict[str, list[float]]:
    """The share of tasks within each limit; a task that a method did not play is none of them."""
    count = len(synchronous(played))
    return {
        name: [sum(value <= limit + 1e-9 for value in values) / count for limit in limits]
        for name, values in ratios.items()
    }
