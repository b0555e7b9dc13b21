"""`tunefree compare`: several methods side by side, on the same data and seeds."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tunefree.cli import flags
from tunefree.cli.tables import print_table
from tunefree.errors import ConfigError
from tunefree.record.summary import size

if TYPE_CHECKING:
    from tunefree.search import Outcome

SEEDS = (0, 1, 2)
WIDTH = 140  # columns; a comparison does not fit into 80


def add_to(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "methods",
        nargs="+",
        metavar="METHOD",
        help="NAME, NAME:key=value,key=value or NAME@tuned.json from `tunefree tune`",
    )
    command.add_argument(
        "--target", type=accuracy, metavar="X", help="also count rounds until this accuracy"
    )
    flags.add_to(command, SEEDS)
    command.set_defaults(act=compare_command)


def accuracy(text: str) -> float:
    """The number; in other commands `--target` names a column."""
    try:
        return float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an accuracy; name the column to learn by --target-column {text}"
        ) from error


def compare_command(args: argparse.Namespace) -> int:
    base = flags.settings_of(args)
    from tunefree.search import compare

    if args.target is not None and not 0 < args.target <= 1:
        raise ConfigError(f"--target {args.target} must be an accuracy between 0 and 1")
    folder = flags.folder_of(args, "compare", [args.methods, args.seeds, base.asdict()])
    try:
        outcomes = compare(
            args.methods, base, args.seeds, folder, target=args.target, workers=args.workers
        )
    except KeyboardInterrupt:
        return flags.interrupted(folder)
    if args.format == "json":
        print(json.dumps({"folder": str(folder), "methods": [each._asdict() for each in outcomes]}))
    else:
        show(outcomes, args.target, "validation" if base.validation else "final")
        print(f"next: all curves and costs on one page:\n  tunefree report {folder} -o report.html")
    return 1 if any(run["state"] == "failed" for each in outcomes for run in each.runs) else 0


def show(outcomes: list[Outcome], target: float | None, judge: str = "final") -> None:
    score = "accuracy" if any(each.accuracy is not None for each in outcomes) else "loss"
    columns = ["method", "steps", f"{judge} {score}", "best", "sent up", "samples", "seconds"]
    if target is not None:
        columns.insert(4, f"rounds to {target:g}")
    rows = []
    for each in outcomes:
        final = each.loss if score == "loss" else each.accuracy
        row = [
            each.method,
            each.steps,
            f"{number(final)}{spread(each) if score == 'accuracy' else ''}{accidents(each)}",
            number(each.best),
            "-" if each.bits_up is None else size(each.bits_up),
            "-" if each.samples is None else f"{each.samples:,.0f}",
            "-" if each.seconds is None else f"{each.seconds:.1f}",
        ]
        if target is not None:
            row.insert(4, words_on_rounds(each.rounds))
        rows.append(row)
    print_table(columns, rows, right=("sent up", "samples", "seconds"), width=WIDTH)
    for each in outcomes:
        if each.steps in ("chosen", "tuned"):
            print(f"  {each.method}: {words_on_steps(each)}")


def words_on_steps(outcome: Outcome) -> str:
    """The step sizes that had to be chosen, and the tuning bill, where it is known."""
    bill = outcome.tuning or {}
    found = bill.get("chosen", outcome.given if bill else ())
    sources = {
        f"found in {bill.get('trials')} trials and {bill.get('rounds', 0):,} rounds": found,
        "given": [name for name in outcome.given if name not in found],
        "its default": [name for name in outcome.step_sizes if name not in outcome.given],
    }
    chosen = {name: f"{value:.3g}" for name, value in outcome.step_sizes.items()}
    if isinstance(found, Mapping):  # a search may find more than step sizes: a decay
        chosen = {name: str(value) for name, value in found.items()} | chosen
    return "; ".join(
        f"{', '.join(f'{name} = {chosen[name]}' for name in names)}, {source}"
        for source, names in sources.items()
        if names
    )


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def spread(outcome: Outcome) -> str:
    return "" if outcome.deviation is None else f" ± {outcome.deviation:.4f}"


def accidents(outcome: Outcome) -> str:
    """How many runs diverged or failed, if any did."""
    states = [run["state"] for run in outcome.runs]
    return "".join(
        f", {states.count(state)} of {len(states)} {state}"
        for state in ("diverged", "failed")
        if state in states
    )


def words_on_rounds(rounds: list[int | None]) -> str:
    """The mean over the runs that reached the target, and how many they are."""
    reached = [each for each in rounds if each is not None]
    if not reached:
        return "never"
    count = f" ({len(reached)} of {len(rounds)})" if len(reached) < len(rounds) else ""
    return f"{sum(reached) / len(reached):.0f}{count}"
