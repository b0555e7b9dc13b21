"""`tunefree tune`: search the step sizes of a method that needs them; print the tuning bill."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tunefree.cli import flags
from tunefree.cli.tables import Answer, Line, table
from tunefree.errors import ConfigError

if TYPE_CHECKING:
    from tunefree.search import Grid, Trial, TuningResult

SEEDS = (1000,)  # not those of comparisons, whose luck must not decide the choice


IN_WORDS = {"decay", "average"}  # searched beside the method's own grid


def add_to(command: argparse.ArgumentParser) -> None:
    flags.add(command, "NAME", "a method, or NAME:key=value to fix an option")
    flags.add_repeated(
        command,
        "--grid KEY=X,X,...",
        "values of a parameter to search (default: the method's own grid); decay=none,linear "
        "and average=off,on alone are searched with that grid",
    )
    flags.add(command, "--budget X", "trials at most (default: the whole grid)", int)
    flags.add(command, "--no-pruning", "run hopeless trials to the end too")
    flags.add(command, "--no-extend", "do not search beyond the edges of the grid")
    flags.add_to(command, SEEDS)
    command.set_defaults(act=tune_command)


def tune_command(args: argparse.Namespace) -> Answer:
    base = flags.settings_of(args)
    from tunefree.search import configure, declared_grid, parse_method, save, tune
    from tunefree.search.batch import folder_of

    if args.budget is not None and args.budget < 1:
        raise ConfigError(f"--budget {args.budget} is too small; it must be at least 1")
    method = parse_method(args.name)
    if method.tuned:
        raise ConfigError(f"{args.name!r} is tuned already; give only the name of the method")
    own = declared_grid(method.name)
    config, _ = configure(method, base)
    rest = {key: values for key, values in own.items() if key not in method.options}
    given = parse_grid(args.grid)
    grid = {**rest, **given} if given.keys() <= IN_WORDS else given
    if both := [key for key in grid if key in method.options]:
        raise ConfigError(
            f"{args.name!r} fixes {both[0]}, which --grid searches; remove one of them"
        )
    if not grid:
        raise ConfigError(
            f"{args.name!r} leaves nothing to search; fix fewer options, or give a grid: --grid "
            "eta=0.01,0.1"
        )
    args.spelled = flags.searched_by("--grid {}=", grid)
    how = {"budget": args.budget, "pruning": not args.no_pruning, "extend": not args.no_extend}
    kind = f"tune-{method.name}"
    folder = args.saved_in = folder_of(args.out, kind, grid, args.seeds, config, how)
    tuned = tune(config, grid, args.seeds, folder, **how, workers=args.workers)
    path = save(tuned, config, args.seeds, folder)
    lines = [
        *lines_of(tuned),
        "next: compare it with a method that needs no tuning:",
        f"  tunefree compare polarfl {method.name}@{path}",
    ]
    failed = any(trial.state == "failed" for trial in tuned.trials)
    return Answer(json.loads(path.read_text(encoding="utf-8")), lines, failed)


def parse_grid(given: list[str]) -> Grid:
    """`eta=0.01,0.1` as a parameter and its values."""
    grid: dict[str, tuple[float | str, ...]] = {}
    for text in given:
        key, _, values = text.partition("=")
        try:
            words = values.split(",")
            each = tuple(words) if key in IN_WORDS else tuple(map(float, words))
        except ValueError:
            each = ()
        if not key or not each:
            raise ConfigError(f"--grid {text!r} must look like eta=0.01,0.1,1")
        if key in grid:
            raise ConfigError(f"--grid {key} is given twice; put all its values in one")
        grid[key] = each
    return grid


def lines_of(tuned: TuningResult) -> Iterator[Line]:
    """The accuracy of each trial, the best one, and the tuning bill."""
    from tunefree.record.summary import size
    from tunefree.search.tuning import text

    names = list(tuned.grid)
    ranked = sorted(tuned.trials, key=lambda trial: trial.point)
    rows = [(*(text(value) for _, value in trial.point), words(trial)) for trial in ranked]
    score = "test accuracy" if tuned.epsilon else "validation accuracy"
    yield from table((*names, score), rows, names)
    best = ", ".join(f"{name} = {text(value)}" for name, value in tuned.chosen.items())
    yield f"best: {best}, {score} {tuned.score:.4f}"
    yield from (f"  {edge}; a wider --grid may do better" for edge in tuned.edges)
    bill = tuned.bill
    yield (
        f"tuning bill: {bill['trials']} trials, {bill['rounds']:,} rounds and "
        f"{bill['samples']:,} samples; clients sent {size(bill['bits_up'])} up and received "
        f"{size(bill['bits_down'])} down, in {bill['seconds']:.1f} s of training"
    )
    if tuned.epsilon:
        print(
            f"privacy: the whole search spends epsilon = {tuned.epsilon:.3g}, each trial counted "
            "in full; training with the best settings comes on top"
        )


def words(trial: Trial) -> str:
    if trial.score is not None:
        return f"{trial.score:.4f}"
    rounds = sum(max(0, len(result.history) - 1) for result in trial.results)
    return f"{trial.state} after {rounds} rounds"
