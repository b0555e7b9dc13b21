"""The papers' figures on Fashion-MNIST, one command each.

    python examples/figures.py bits                 accuracy against uplink bits, Dirichlet 0.1
    python examples/figures.py asynchronous         accuracy against steps, buffered, Dirichlet 0.5
    python examples/figures.py concurrency          final accuracy against jobs out at a time

`--scale small` (the default) fits into minutes on two cores, `--scale paper` has the papers' sizes.
Runs are kept in the folder given by `--out`; a run that is there already is not made again.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from tunefree.api import prepare
from tunefree.config import load
from tunefree.errors import WireError
from tunefree.record import Record, Row

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
ETAS = (0.01, 0.03, 0.1)
SETTINGS: dict[str, dict[str, Any]] = {
    "small": {"system.T": 120, "system.K": 5, "data.batch_size": 32},
    "paper": {"system.T": 300, "system.K": 12, "data.batch_size": 100},
}
COMMON = {"system.N": 100, "system.S": 10, "data.name": "fashion-mnist", "run.eval_every": 10}


class Arm(NamedTuple):
    label: str
    settings: dict[str, Any]


class Curve(NamedTuple):
    """One arm's histories, one per seed; a run that diverged has no last accuracy."""

    arm: Arm
    histories: list[list[Row]]

    @property
    def final(self) -> list[float]:
        return [history[-1].get("accuracy", 0.1) for history in self.histories]


def algorithm(name: str, **options: Any) -> dict[str, Any]:
    return {"algorithm.name": name} | {f"algorithm.{k}": v for k, v in options.items()}


BITS = (
    Arm("ParFreFL", algorithm("parfrefl")),
    Arm("ComParFreFL 0.1", algorithm("comparfrefl", compressor="top:0.1")),
    Arm("ComParFreFL 0.05", algorithm("comparfrefl", compressor="top:0.05")),
    Arm("SCAFCOM 0.05, eta 0.03", algorithm("scafcom", compressor="top:0.05", eta=0.03)),
    Arm("PAdaMFed", algorithm("padamfed")),
)
TUNING_FREE = Arm("AdaMasFL", algorithm("adamasfl"))
TUNED = {
    "FedBuff": [algorithm("fedbuff", eta=eta) for eta in ETAS],
    "CA2FL": [algorithm("ca2fl", eta=eta) for eta in ETAS],
    "DeFedAvg-nIID": [algorithm("defedavg_niid", eta=eta) for eta in ETAS],
    "FADAS": [algorithm("fadas", eta=eta) for eta in ETAS],
    "MasFL": [algorithm("masfl", eta=eta, gamma=5 * eta) for eta in ETAS],
}


def run(arm: Arm, seed: int, folder: Path) -> list[Row]:
    """The run's history, from the folder if it was made before."""
    path = folder / f"{arm.label.replace(' ', '-').replace(',', '')}-seed{seed}.sqlite"
    if path.exists():
        record = Record.open(path)
        if record.facts()["state"] in ("done", "diverged"):
            return record.history()
        record.close()
        path.unlink()
    one = prepare(load(None, COMMON | arm.settings | {"run.seed": seed, "run.out": str(path)}))
    try:
        for _ in one:
            pass
    except WireError as error:
        print(f"{arm.label}: {error}")
    last = one.history[-1]
    accuracy, seconds = last.get("accuracy", 0.1), last["seconds"]
    print(f"{arm.label}, seed {seed}: accuracy {accuracy:.4f}, {seconds:.0f} s", flush=True)
    return one.history


def curves(arms: Iterable[Arm], seeds: Sequence[int], folder: Path) -> list[Curve]:
    return [Curve(arm, [run(arm, seed, folder) for seed in seeds]) for arm in arms]


def tuned(base: dict[str, Any], folder: Path) -> list[Arm]:
    """Each tuned method at its best step size, chosen by the accuracy of one run of seed 0."""
    arms = []
    for name, choices in TUNED.items():
        tries = [
            Arm(f"{name} eta {choice['algorithm.eta']:g}", base | choice) for choice in choices
        ]
        best = max(tries, key=lambda arm: run(arm, 0, folder)[-1].get("accuracy", 0.0))
        arms.append(Arm(best.label, best.settings))
    return arms


def plot(axes: Axes, results: Sequence[Curve], x: str, scale: float) -> None:
    """Mean over seeds, with a band from the lowest to the highest."""
    for colour, curve in zip(COLOURS, results, strict=False):
        rows = [[row for row in h if "accuracy" in row] for h in curve.histories]
        at = [row[x] / scale for row in rows[0]]
        values = [[row["accuracy"] for row in history] for history in rows]
        columns = list(zip(*values, strict=False))
        axes.plot(
            at[: len(columns)], [mean(c) for c in columns], color=colour, label=curve.arm.label
        )
        low, high = [min(c) for c in columns], [max(c) for c in columns]
        axes.fill_between(at[: len(columns)], low, high, color=colour, alpha=0.15, linewidth=0)


def table(results: Sequence[Curve]) -> None:
    lines = Table("method", "final accuracy", "MB up", "virtual s", box=None)
    for curve in results:
        final, last = curve.final, curve.histories[0][-1]
        spread = f" ± {stdev(final):.4f}" if len(final) > 1 else ""
        megabytes, time = last["bits_up"] / 8e6, last["time"]
        lines.add_row(
            curve.arm.label, f"{mean(final):.4f}{spread}", f"{megabytes:.1f}", f"{time:.0f}"
        )
    Console().print(lines)


def draw_bits(scale: str, seeds: Sequence[int], folder: Path) -> Figure:
    base = SETTINGS[scale] | {"data.partition": "dirichlet:0.1"}
    results = curves([Arm(a.label, base | a.settings) for a in BITS], seeds, folder)
    table(results)
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    plot(axes, results, "bits_up", 8e6)
    axes.set(xscale="log", xlabel="MB sent up by all clients, opening included", ylabel="accuracy")
    axes.set_title("Fashion-MNIST, Dirichlet 0.1: accuracy against uplink")
    axes.legend(frameon=False)
    return figure


def draw_asynchronous(scale: str, seeds: Sequence[int], folder: Path) -> Figure:
    base = SETTINGS[scale] | buffered(20)
    arms = [Arm(TUNING_FREE.label, base | TUNING_FREE.settings), *tuned(base, folder)]
    results = curves(arms, seeds, folder)
    table(results)
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    plot(axes, results, "t", 1)
    axes.set(xlabel="server steps", ylabel="accuracy")
    axes.set_title("Fashion-MNIST, Dirichlet 0.5, 20 jobs out, buffer 10")
    axes.legend(frameon=False)
    return figure


def draw_concurrency(scale: str, seeds: Sequence[int], folder: Path) -> Figure:
    """Step sizes are those tuned for 20 jobs, as in the paper; only the number of jobs grows."""
    base = SETTINGS[scale] | buffered(20)
    arms = [Arm(TUNING_FREE.label, base | TUNING_FREE.settings), *tuned(base, folder)]
    jobs = (10, 20, 30, 50)
    lines = Table("method", *(f"{n} out" for n in jobs), "drop", box=None)
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for colour, arm in zip(COLOURS, arms, strict=False):
        finals = []
        for n in jobs:
            there = Arm(
                arm.label if n == 20 else f"{arm.label} out {n}", arm.settings | buffered(n)
            )
            finals.append(mean(curves([there], seeds, folder)[0].final))
        axes.plot(jobs, finals, "o-", color=colour, label=arm.label)
        lines.add_row(arm.label, *(f"{f:.4f}" for f in finals), f"{finals[0] - finals[-1]:+.4f}")
    Console().print(lines)
    axes.set(xlabel="jobs out at a time", ylabel="final accuracy", xticks=jobs)
    axes.set_title("Fashion-MNIST, Dirichlet 0.5: the same steps, ever staler models")
    axes.legend(frameon=False)
    return figure


def buffered(concurrency: int) -> dict[str, Any]:
    return {
        "data.partition": "dirichlet:0.5",
        "schedule.name": "buffered",
        "schedule.concurrency": concurrency,
    }


FIGURES = {"bits": draw_bits, "asynchronous": draw_asynchronous, "concurrency": draw_concurrency}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("figure", choices=FIGURES)
    parser.add_argument("--scale", choices=SETTINGS, default="small")
    parser.add_argument("--rounds", type=int, help="instead of the scale's own")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path, default=Path("figures"))
    args = parser.parse_args()
    if args.rounds:
        SETTINGS[args.scale]["system.T"] = args.rounds
    folder = args.out / f"{args.scale}-{SETTINGS[args.scale]['system.T']}"
    folder.mkdir(parents=True, exist_ok=True)
    figure = FIGURES[args.figure](args.scale, args.seeds, folder)
    path = args.out / f"{args.figure}-{args.scale}.png"
    figure.savefig(path, dpi=120)
    print(f"picture in {path}")


if __name__ == "__main__":
    main()
