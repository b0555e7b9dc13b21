"""`tunefree compare`: several methods side by side, on the same data and seeds."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tunefree.cli import flags
from tunefree.cli.tables import Answer, Line, accidents, number, table
from tunefree.errors import ConfigError

if TYPE_CHECKING:
    from tunefree.search import Outcome

SEEDS = (0, 1, 2)


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


def compare_command(args: argparse.Namespace) -> Answer:
    base = flags.settings_of(args)
    from tunefree.search import compare
    from tunefree.search.batch import folder_of

    if args.target is not None and not 0 < args.target <= 1:
        raise ConfigError(f"--target {args.target} must be an accuracy between 0 and 1")
    folder = args.saved_in = folder_of(args.out, "compare", args.method, args.seeds, base)
    outcomes = compare(
        args.method, base, args.seeds, folder, target=args.target, workers=args.workers
    )
    attack = [f"  all runs under the simulated attack {base.attack}"] if base.attack else []
    lines = [
        *rows_of(outcomes, args.target, "validation" if base.validation else "final"),
        *attack,
        "next: all curves and costs on one page:",
        f"  tunefree report {folder} -o report.html",
    ]
    failed = any(run["state"] == "failed" for each in outcomes for run in each.runs)
    data = {"folder": str(folder), "methods": [each._asdict() for each in outcomes]}
    return Answer(data, lines, failed)


def rows_of(outcomes: list[Outcome], target: float | None, judge: str) -> Iterator[Line]:
    """A row for each method, and where the step sizes came from that had to be chosen."""
    from tunefree.record.summary import size

    score = "accuracy" if any(each.accuracy is not None for each in outcomes) else "loss"
    rows = []
    for each in outcomes:
        spread = "" if each.deviation is None else f" ± {each.deviation:.4f}"
        final = number(each.loss) if score == "loss" else number(each.accuracy) + spread
        row = {"method": each.method, "steps": each.steps}
        row |= {
            f"{judge} {score}": final + accidents([run["state"] for run in each.runs]),
            "best": number(each.best),
        }
        if target is not None:
            row[f"rounds to {target:g}"] = words_on_rounds(each.rounds)
        row["sent up"] = "-" if each.bits_up is None else size(each.bits_up)
        row |= {"samples": number(each.samples, ",.0f"), "seconds": number(each.seconds, ".1f")}
        rows.append(row)
    right = ("sent up", "samples", "seconds")
    yield from table(list(rows[0]), [list(row.values()) for row in rows], right)
    for each in outcomes:
        if each.steps in ("chosen", "tuned"):
            yield f"  {each.method}: {words_on_steps(each)}"


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


def words_on_rounds(rounds: list[int | None]) -> str:
    """The mean over the runs that reached the target, and how many they are."""
    reached = [each for each in rounds if each is not None]
    if not reached:
        return "never"
    count = f" ({len(reached)} of {len(rounds)})" if len(reached) < len(rounds) else ""
    return f"{sum(reached) / len(reached):.0f}{count}"
