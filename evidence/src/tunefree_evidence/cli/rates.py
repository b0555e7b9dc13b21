"""`tunefree-evidence rates`: the first picture of the README, from runs on digits."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tunefree.search import plan, run_all, settings, sweep, with_seed
from tunefree_evidence.cli.terminal import check_out, print_table

OURS, RATES = "polarfl", (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0, 10.0)
SWEPT: Sequence[tuple[str, str, str, Mapping[str, float]]] = (
    ("FedAvg", "fedavg", "eta", {}),
    ("SCAFFOLD", "scaffold", "eta", {}),
    ("server Muon, on clients with 0.1", "fedmuon_server", "eta_s", {"eta": 0.1}),
)


def add_to(command: argparse.ArgumentParser) -> None:
    command.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="X")
    command.add_argument("--rounds", type=int, default=50, metavar="X", help="default 50")
    command.add_argument(
        "--out", type=Path, default=Path("runs") / "rates", metavar="DIR", help="of all runs"
    )
    command.add_argument("--workers", type=int, default=0, metavar="X", help="0 is one per core")
    command.add_argument(
        "-o",
        dest="picture",
        type=Path,
        default=Path("docs") / "learning-rates.png",
        metavar="FILE",
        help="the picture (default docs/learning-rates.png)",
    )
    command.set_defaults(act=rates_command)


def rates_command(args: argparse.Namespace) -> int:
    from tunefree_evidence.figures.rates import save_rates

    check_out(args.out)
    base = settings(
        data="digits", partition="dirichlet:0.1", clients=50, per_round=10, local_steps=10,
        batch_size=16, rounds=args.rounds, eval_every=args.rounds,
    )  # fmt: skip
    curves = {}
    for title, method, over, fixed in SWEPT:
        swept = replace(base, algorithm=method, option=dict(fixed))
        found = sweep(swept, over, RATES, args.seeds, args.out / method, args.workers)
        curves[title] = [
            (point.value, [r.scores[-1]["accuracy"] * (r.state == "done") for r in point.results])
            for point in found.points
        ]
    runs = [plan(args.out / OURS, OURS, with_seed(base, seed)) for seed in args.seeds]
    level = [result.scores[-1]["accuracy"] for result in run_all(runs, args.workers)]
    path = save_rates(curves, level, "PolarFL", args.picture)
    if args.format == "json":
        print(json.dumps({"picture": str(path), OURS: level, **curves}))
        return 0
    rows = [
        (title, f"{rate:g}", ", ".join(f"{value:.3f}" for value in found))
        for title, curve in curves.items()
        for rate, found in curve
    ]
    last = ("PolarFL", "none", ", ".join(f"{value:.3f}" for value in level))
    print_table(("method", "learning rate", "accuracy, seeds"), [last, *rows])
    return 0
