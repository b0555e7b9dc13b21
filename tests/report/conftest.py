"""A folder of tiny runs of every kind, made once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tunefree
from tunefree.errors import WireError
from tunefree.record import Facts, Summary
from tunefree.run.run import Run, prepare
from tunefree.settings import load

SMALL: dict[str, object] = {
    **{"clients": 6, "per_round": 3, "local_steps": 2, "rounds": 8, "eval_every": 2},
    "algorithm": "padamfed",
}
FREE = {"formulas": {"eta": "1 / (K sqrt(T))"}, "parameters": 650}
SWEEP = {"role": "sweep", "title": "FedAvg", "sweep": {"over": "eta"}}
SEARCH = {"trials": 3, "rounds": 24, "samples": 999, "bits_up": 10, "bits_down": 20}
BUFFERED = {"schedule": "buffered", "concurrency": 6, "delays": "large"}


def planned(out: Path, facts: Mapping[str, object] = {}, **settings: object) -> Run:
    """A tiny run, not yet started; `option__eta` stands for `option.eta`."""
    dotted = {key.replace("__", "."): value for key, value in settings.items()}
    always = {"out": str(out), "commit_every": 1}  # readers see every step at once
    return prepare(load(None, SMALL | always | dotted), facts)


def run(out: Path, facts: Mapping[str, object] = {}, **settings: object) -> None:
    for _ in planned(out, facts, **settings):
        pass


def made(name: str, rows: Sequence[Mapping[str, float]] = (), /, **facts: Any) -> Summary:
    """A run that was never trained."""
    return Summary(Path(f"{name}.sqlite"), Facts.read(facts), rows)


def configured(seed: int | None = None, **settings: object) -> dict[str, Any]:
    """Settings as a run file stores them; `option__eta` is an option."""
    found: dict[str, Any] = {"algorithm": "fedavg", "option": {}}
    if seed is not None:
        found["seed"] = seed
    for name, value in settings.items():
        table, _, key = name.partition("__")
        if key:
            found.setdefault(table, {})[key] = value
        else:
            found[name] = value
    return found


def scores(*accuracies: float, **more: float) -> list[dict[str, float]]:
    """Rows of a run, one for each accuracy."""
    return [{"t": t, "accuracy": value, **more} for t, value in enumerate(accuracies)]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    fedavg: dict[str, Any] = {"algorithm": "fedavg"}
    for seed in (1, 2):
        one = {"seed": seed}
        free = FREE | {"title": "PAdaMFed", "label_counts": [[3, 0, 2]] * 6}
        run(folder / f"padamfed-{seed}.sqlite", free, **one)
        tuned = {"label": "FedAvg, tuned", "role": "method", "tuning": SEARCH}
        run(folder / f"fedavg-{seed}.sqlite", tuned, **fedavg, **one, option__eta=0.1)
    compressed = {"algorithm": "comparfrefl"}
    run(folder / "compressed.sqlite", FREE | {"title": "ComParFreFL"}, **compressed)
    buffered = {key.replace(".", "__"): value for key, value in BUFFERED.items()}
    run(folder / "late.sqlite", {"title": "Late"}, **buffered, algorithm="adamasfl")
    for eta in (0.01, 1.0):
        sweep = SWEEP | {"label": f"fedavg:eta={eta}"}
        run(folder / f"sweep-{eta}.sqlite", sweep, **fedavg, option__eta=eta)
    trial = {"role": "trial", "label": "scaffold:eta=0.1", "title": "SCAFFOLD"}
    run(folder / "trial.sqlite", trial, algorithm="scaffold", option__eta=0.1)
    for name, facts in (
        ("diverged", {"label": "Too far"}),
        ("sweep-huge", SWEEP),
    ):
        with pytest.raises(WireError):
            run(folder / f"{name}.sqlite", facts, **fedavg, option__eta=1e30)
    return folder


@pytest.fixture(scope="session")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `tunefree.train`, which has no settings of the command line."""
    path = tmp_path_factory.mktemp("own") / "mine.sqlite"
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(8, 4)).astype("float32"), rng.integers(3, size=8)) for _ in "abc"]
    model = torch.nn.Linear(4, 3)
    tunefree.train(
        model, clients, rounds=50, local_steps=1, eval_every=25, progress=False, out=path
    )
    return path
