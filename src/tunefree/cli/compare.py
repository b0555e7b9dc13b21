"""`tunefree compare`: several methods side by side, on the same data and seeds."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tunefree.cli import flags
from tunefree.cli.tables import Answer, print_table
from tunefree.errors import ConfigError

if TYPE_CHECKING:
    from tunefree.search import Outcome

SEEDS = (0, 1, 2)
WIDTH = 140  # columns; a comparison does not fit into 80


def add_to(command: argparse.ArgumentParser) -> None:
    forms = "NAME, NAME:key=value,key=value or NAME@tuned.json from `tunefree tune`"
    flags.add(command, "METHOD ...", forms)
    flags.add(command, "--target X", "also count rounds until this accuracy", accuracy)
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


def compare_command(args: argparse.Namespace) -> Answer | int:
    base = flags.settings_of(args)
    from tunefree.search import compare

    if args.target is not None and not 0 < args.target <= 1:
        raise ConfigError(f"--target {args.target} must be an accuracy between 0 and 1")
    folder = flags.folder_of(args, "compare", [args.method, args.seeds, base.asdict()])
    try:
        outcomes = compare(
            args.method, base, args.seeds, folder, target=args.target, workers=args.workers
        )
    except KeyboardInterrupt:
        return flags.interrupted(folder)

    def text() -> None:
        show(outcomes, args.target, "validation" if base.validation else "final")
        if base.attack:
            print(f"  all runs under the simulated attack {base.attack}")
        print(f"next: all curves and costs on one page:\n  tunefree report {folder} -o report.html")

    failed = any(run["state"] == "failed" for each in outcomes for run in each.runs)
    data = {"folder": str(folder), "methods": [each._asdict() for each in outcomes]}
    return Answer(data, text, failed)


def show(outcomes: list[Outcome], target: float | None, judge: str = "final") -> None:
    from tunefree.record.summary import size

    score = "accuracy" if any(each.accuracy is not None for each in outcomes) else "loss"
    rows = []
    for each in outcomes:
        final = number(each.loss) if score == "loss" else number(each.accuracy) + spread(each)
        row = {"method": each.method, "steps": each.steps}
        row |= {f"{judge} {score}": final + accidents(each), "best": number(each.best)}
        if target is not None:
            row[f"rounds to {target:g}"] = words_on_rounds(each.rounds)
        row["sent up"] = "-" if each.bits_up is None else size(each.bits_up)
        row |= {"samples": number(each.samples, ",.0f"), "seconds": number(each.seconds, ".1f")}
        rows.append(row)
    right = ("sent up", "samples", "seconds")
    print_table(list(rows[0]), [list(row.values()) for row in rows], right=right, width=WIDTH)
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


def number(value: float | None, form: str = ".4f") -> str:
    return "-" if value is None else format(value, form)


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
