"""`tunefree sweep`: final accuracy against a step size, and the width of the range that works."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from tunefree.cli import flags
from tunefree.cli.tables import print_table
from tunefree.errors import ConfigError
from tunefree.report.sweeps import WITHIN, Width

if TYPE_CHECKING:
    from tunefree.search import Sweep

SEEDS = (0,)


def add_to(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "method", metavar="NAME", help="a method, or NAME:key=value to fix an option"
    )
    command.add_argument(
        "--over", required=True, metavar="STEP", help="the step size to vary: eta, gamma, ..."
    )
    command.add_argument(
        "--values",
        nargs="+",
        type=float,
        metavar="X",
        help="step sizes (default 0.001 0.003 0.01 0.03 0.1 0.3 1)",
    )
    flags.add_to(command, SEEDS)
    command.set_defaults(act=sweep_command)


def sweep_command(args: argparse.Namespace) -> int:
    base = flags.settings_of(args)
    from tunefree.search import configure, parse_method, sweep
    from tunefree.search.sweeping import HALF_DECADES, as_dict

    method = parse_method(args.method)
    if args.over in method.options:
        raise ConfigError(f"{args.method!r} fixes {args.over}, which --over varies; remove it")
    values = args.values or HALF_DECADES
    config, _ = configure(method, base)
    what = [args.over, values, args.seeds, config.asdict()]
    folder = flags.folder_of(args, f"sweep-{method.name}-{args.over}", what)
    try:
        done = sweep(config, args.over, values, args.seeds, folder, args.workers)
    except KeyboardInterrupt:
        return flags.interrupted(folder)
    if args.format == "json":
        print(json.dumps({"folder": str(folder), **as_dict(done, method.name)}))
    else:
        show(done)
    return 1 if any(r.state == "failed" for point in done.points for r in point.results) else 0


def show(done: Sweep) -> None:
    rows = []
    for value, accuracy, results in done.points:
        bad = [result.state for result in results if result.state != "done"]
        failed = f", {len(bad)} of {len(results)} {bad[0]}" if bad else ""
        score = "-" if accuracy is None else f"{accuracy:.4f}"
        rows.append((f"{value:g}", f"{score}{failed}"))
    print_table((done.over, "final accuracy"), rows, right=(done.over,))
    if done.width is None:
        print(f"no {done.over} that was tried is clearly better than guessing; try others")
    else:
        show_width(done.over, done.width)
    if done.theory is not None:
        print(f"  the formula gives {done.over} = {done.theory:.3g}")


def show_width(over: str, width: Width) -> None:
    print(
        f"{over} from {width.low:.3g} to {width.high:.3g}, {width.decades:.2f} decades, comes "
        f"within {WITHIN:g} of the best, which is at {width.best:g}"
    )
    cut = [side for side, is_cut in (("below", width.cut_low), ("above", width.cut_high)) if is_cut]
    if cut:
        print(f"  the values tried cut off the range: it may extend further {' and '.join(cut)}")
