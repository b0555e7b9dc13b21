"""Tiny settings on the built-in digits, and ways to do runs without starting processes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from tunefree.record import Record, Row
from tunefree.search.batch import (
    PlannedRun,
    Result,
    Start,
    from_settings,
    perform,
    saved_result,
)
from tunefree.settings import Settings, load

SIZES = {
    **{"clients": 6, "per_round": 3, "local_steps": 2, "rounds": 8},
    "eval_every": 2,
}
FLAGS = (
    *("--clients", "6", "--per-round", "3", "--local-steps", "2", "--rounds", "8"),
    *("--eval-every", "2"),
)


def settings(name: str = "padamfed", **more: object) -> Settings:
    """`option__eta=0.1` sets option.eta."""
    given = {key.replace("__", "."): value for key, value in more.items()}
    return load(None, {**SIZES, "algorithm": name, **given})


def run_here(
    runs: Sequence[PlannedRun], workers: int = 0, start: Start | None = None
) -> list[Result]:
    """What `batch.run_all` does, in this process."""
    results = []
    for run in runs:
        result = saved_result(run)
        if result is None:
            *_, last = perform(run, start or from_settings)
            assert isinstance(last, Result)
            result = last
        assert result.state != "failed", result
        results.append(result)
    return results


def run_scripted(
    curve: Callable[[Settings], Sequence[float] | None],
) -> Callable[..., list[Result]]:
    """A `run_all` that trains nothing: `curve` gives the accuracies, None is divergence."""

    def run_all(runs: Sequence[PlannedRun], workers: int = 0, start: object = None) -> list[Result]:
        return [scripted(run) for run in runs]

    def scripted(run: PlannedRun) -> Result:
        accuracies, history = curve(run.settings), [row(-1, 0.1)]
        if accuracies is None:
            return Result(run, "diverged", history, "as scripted")
        for t, accuracy in enumerate(accuracies):
            history.append(row(t, accuracy))
            if accuracy < run.floors.get(t, 0.0):
                return Result(run, "pruned", history, "as scripted")
        return Result(run, "done", history)

    def row(t: int, accuracy: float) -> Row:
        cost = {"samples": 10 * (t + 1), "seconds": 0.5 * (t + 1), "virtual_seconds": 0.0}
        bits = {"bits_up": 32 * (t + 1), "bits_down": 64 * (t + 1)}
        return {"t": t, **cost, **bits, "accuracy": accuracy, "loss": 1.0, "train_loss": 1.0}

    return run_all


def theta_sha256(path: Path) -> str:
    record = Record.open(path)
    theta = record.vectors()["theta"]
    record.close()
    return hashlib.sha256(theta.tobytes()).hexdigest()
