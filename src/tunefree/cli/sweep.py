"""`tunefree sweep`: final accuracy against a step size, and the width of the range that works."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tunefree.cli import flags
from tunefree.cli.tables import Answer, Line, accidents, number, table
from tunefree.errors import ConfigError

if TYPE_CHECKING:
    from tunefree.search import Sweep

SEEDS = (0,)


def add_to(command: argparse.ArgumentParser) -> None:
    flags.add(command, "NAME", "a method, or NAME:key=value to fix an option")
    flags.add(command, "--over STEP", "the step size to vary: eta, gamma, ...", required=True)
    usual = "step sizes (default 0.001 0.003 0.01 0.03 0.1 0.3 1)"
    flags.add(command, "--values X ...", usual, float)
    flags.add_to(command, SEEDS)
    command.set_defaults(act=sweep_command)


def sweep_command(args: argparse.Namespace) -> Answer:
    base = flags.settings_of(args)
    from tunefree.search import configure, parse_method, sweep
    from tunefree.search.batch import folder_of
    from tunefree.search.sweeping import HALF_DECADES, as_dict

    method = parse_method(args.name)
    if args.over in method.options:
        raise ConfigError(f"{args.name!r} fixes {args.over}, which --over varies; remove it")
    values = args.values or HALF_DECADES
    args.spelled = flags.searched_by("--values ", (args.over,))
    config, _ = configure(method, base)
    kind = f"sweep-{method.name}-{args.over}"
    folder = args.saved_in = folder_of(args.out, kind, values, args.seeds, config)
    done = sweep(config, args.over, values, args.seeds, folder, args.workers)
    failed = any(r.state == "failed" for point in done.points for r in point.results)
    data = {"folder": str(folder), **as_dict(done, method.name)}
    return Answer(data, lines_of(done), failed)


def lines_of(done: Sweep) -> Iterator[Line]:
    """The accuracy of each value, and the range of those that work."""
    from tunefree.report.sweeps import WITHIN

    rows, width = [], done.width
    for value, accuracy, results in done.points:
        states = [result.state for result in results]
        rows.append((f"{value:g}", number(accuracy) + accidents(states)))
    yield from table((done.over, "final accuracy"), rows, (done.over,))
    if width is None:
        yield f"no {done.over} that was tried is clearly better than guessing; try others"
    else:
        yield (
            f"{done.over} from {width.low:.3g} to {width.high:.3g}, {width.decades:.2f} decades, "
            f"comes within {WITHIN:g} of the best, which is at {width.best:g}"
        )
        sides = (("below", width.cut_low), ("above", width.cut_high))
        if cut := [side for side, is_cut in sides if is_cut]:
            yield f"  the values tried cut off the range: it may extend further {' and '.join(cut)}"
    if done.theory is not None:
        yield f"  the formula gives {done.over} = {done.theory:.3g}"
