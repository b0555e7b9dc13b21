"""No learning rate against three: six trainings on digits that clients hold very unevenly.

Prints a table and writes demo/digits.png. Runs on all cores, in about a minute on two.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

import tunefree
from tunefree.data import sources
from tunefree.errors import WireError
from tunefree.record import Record

ROUNDS = 300
FOLDER = Path("demo")


class Arm(NamedTuple):
    """One line of the table."""

    label: str
    algorithm: str
    options: dict[str, Any]
    colour: str
    line: str


class Result(NamedTuple):
    arm: Arm
    rounds: Sequence[float]
    accuracy: Sequence[float]
    megabytes: float
    ended: str


ARMS = (
    Arm("PAdaMFed", "padamfed", {}, "#0072b2", "-"),
    Arm("ParFreFL", "parfrefl", {}, "#009e73", "-"),
    Arm("FedAvg, eta = 0.003", "fedavg", {"eta": 0.003}, "#d55e00", ":"),
    Arm("FedAvg, eta = 0.1", "fedavg", {"eta": 0.1}, "#d55e00", "--"),
    Arm("FedAvg, eta = 3", "fedavg", {"eta": 3.0}, "#d55e00", "-."),
    Arm("SCAFFOLD, eta = 0.1", "scaffold", {"eta": 0.1}, "#cc79a7", "--"),
)


def train(arm: Arm) -> Result:
    """One federated training; a step size that blows up is a result too."""
    digits = sources.load("digits")
    parts = tunefree.partition.dirichlet(digits.train.y, clients=50, alpha=0.1, seed=0)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
    )
    path = FOLDER / f"{arm.algorithm}{arm.options.get('eta', '')}.sqlite"
    ended = "done"
    try:
        tunefree.train(
            model,
            (digits.train, parts),
            digits.test,
            algorithm=arm.algorithm,
            rounds=ROUNDS,
            per_round=10,
            local_steps=10,
            batch_size=16,
            out=path,
            progress=False,
            **arm.options,
        )
    except WireError:
        ended = "diverged"
    history = Record.open(path).history()
    rows = [row for row in history if "accuracy" in row]
    return Result(
        arm,
        rounds=[row["t"] + 1 for row in rows],
        accuracy=[row["accuracy"] for row in rows],
        megabytes=history[-1]["bits_up"] / 8e6,
        ended=ended if ended == "done" else f"diverged in round {len(history)}",
    )


def draw(results: Sequence[Result], path: Path) -> None:
    """Accuracy against rounds, one line per arm, named at its end."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for result in results:
        arm = result.arm
        axes.plot(result.rounds, result.accuracy, arm.line, color=arm.colour, label=arm.label)
    axes.set(
        xlabel="rounds",
        ylabel="test accuracy",
        ylim=(0, 1),
        title="Digits, 50 clients, Dirichlet 0.1: no learning rate against chosen ones",
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="center right", frameon=False)
    figure.savefig(path, dpi=120)


def main() -> None:
    began = time.perf_counter()
    console = Console()
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.sqlite*"):
        old.unlink()
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(train, arm) for arm in ARMS]
        for count, future in enumerate(as_completed(waiting), start=1):
            print(f"{count}/{len(ARMS)}  {future.result().arm.label}: {future.result().ended}")
    results = [future.result() for future in waiting]

    table = Table("method", "learning rate", "test accuracy", "sent up", "", box=None)
    for arm, _, accuracy, megabytes, ended in results:
        rate = "none to choose" if not arm.options else f"{arm.options['eta']:g}, by hand"
        score = "-" if ended != "done" else f"{accuracy[-1]:.3f}"
        table.add_row(arm.label, rate, score, f"{megabytes:.0f} MB", ended)
    console.print()
    console.print(table)
    path = FOLDER / "digits.png"
    draw(results, path)
    print(f"\ncurves in {path} ({time.perf_counter() - began:.0f} s)")


if __name__ == "__main__":
    main()
