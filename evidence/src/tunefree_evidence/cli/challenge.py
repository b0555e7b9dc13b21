"""`tunefree-evidence challenge`: untuned methods against tuned ones, on a fixed suite of tasks."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefree.errors import ConfigError
from tunefree_evidence.cli.terminal import check_out, interrupted, print_table

if TYPE_CHECKING:
    from tunefree_evidence.challenge.score import Standing

FOLDER = Path("runs") / "challenge"
PAGE = Path("docs") / "challenge.md"
WIDTH = 120


def add_to(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "what",
        nargs="*",
        metavar="TASK",
        help="names of tasks, your own FILE.toml, development, held-out or all (default); "
        "or list or page alone",
    )
    command.add_argument(
        "--scale",
        choices=("smoke", "small", "full"),
        default="small",
        help="smoke: a minute, decides nothing; small: hours; full: days (default small)",
    )
    command.add_argument(
        "--add",
        action="append",
        default=[],
        metavar="METHOD",
        help="add a method to the suite's: NAME, package.module:Name, NAME:key=value",
    )
    command.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="only these of the suite's methods"
    )
    command.add_argument(
        "--seeds", nargs="+", type=int, default=[], metavar="X", help="of scored runs"
    )
    command.add_argument(
        "--trials", type=int, default=0, metavar="X", help="per tuned method at most"
    )
    command.add_argument(
        "--out",
        type=Path,
        default=FOLDER,
        metavar="DIR",
        help=f"folder of all runs (default {FOLDER})",
    )
    command.add_argument(
        "--workers", type=int, default=0, metavar="X", help="runs at once; 0 is one per core"
    )
    command.add_argument("--data-dir", default="", metavar="X", help="where data files are")
    command.add_argument(
        "-o",
        dest="page",
        type=Path,
        default=PAGE,
        metavar="FILE",
        help=f"written by page (default {PAGE})",
    )
    command.set_defaults(act=challenge_command)


def challenge_command(args: argparse.Namespace) -> int:
    if args.data_dir:
        os.environ["TUNEFREE_DATA"] = args.data_dir  # worker processes inherit it
    if min((args.workers, args.trials, *args.seeds)) < 0:
        raise ConfigError("--workers, --trials and --seeds must be at least 0")
    if len(set(args.seeds)) < len(args.seeds):
        raise ConfigError(f"--seeds {args.seeds} has the same seed twice; remove one")
    alone = [word for word in args.what if word in ("list", "page")]
    if alone and len(args.what) > 1:
        raise ConfigError(
            f"`tunefree-evidence challenge {alone[0]}` takes no tasks; remove the others"
        )
    if alone:
        return list_tasks(args) if alone == ["list"] else write_page(args)
    check_out(args.out)
    return run_chosen(args)


def list_tasks(args: argparse.Namespace) -> int:
    from tunefree_evidence.challenge.methods import entries
    from tunefree_evidence.challenge.runner import configure
    from tunefree_evidence.challenge.tasks import TASKS, in_words

    rows: list[dict[str, Any]] = [
        {
            "task": task.name,
            "held_out": task.held_out,
            "kind": task.kind,
            "methods": [entry.method for entry in entries(task.kind, args.add, args.only)],
            "what": in_words(task, configure(task, args.scale)),
        }
        for task in TASKS
    ]
    if args.format == "json":
        print(json.dumps(rows))
        return 0
    print_table(
        ("task", "held out", "methods", "what"),
        [
            (row["task"], "yes" if row["held_out"] else "", str(len(row["methods"])), row["what"])
            for row in rows
        ],
        wrapped=("what",),
    )
    return 0


def run_chosen(args: argparse.Namespace) -> int:
    from tunefree_evidence.challenge import folder, score
    from tunefree_evidence.challenge.runner import Order, run_tasks
    from tunefree_evidence.challenge.tasks import choose

    order = Order(
        choose(args.what),
        args.scale,
        args.out,
        own=args.add,
        only=args.only,
        seeds=args.seeds,
        trials=args.trials,
        workers=args.workers,
    )
    finished: list[dict[str, Any]] = []
    try:
        for task in run_tasks(order, lambda text: print(text, file=sys.stderr, flush=True)):
            finished.append(task)
            folder.save(order, finished)
            print_task(task, sys.stderr)
    except KeyboardInterrupt:
        return interrupted(args.out)
    result = folder.save(order, finished)
    asked = {task["task"] for task in finished}
    shown = [task for task in result["tasks"] if task["task"] in asked]
    if args.format == "json":
        print(json.dumps({**result, "tasks": shown}))
    else:
        show(score.standings(shown))
        if args.scale == "smoke":
            print("smoke size only shows that it runs")
        print(f"all numbers are in {folder.file_of(args.out, args.scale)}")
    return 1 if any(task.get("failed") for task in finished) else 0


def print_task(task: dict[str, Any], stream: Any) -> None:
    """The final accuracies of each method, as soon as a task is finished."""
    for method in task["methods"]:
        ends = " ".join(f"{value:.4f}" for value in method["accuracy"])
        print(f"  {method['method']:<30} {ends}  {method['chosen'] or ''}", file=stream, flush=True)


def show(found: list[Standing]) -> None:
    from tunefree_evidence.challenge import page

    print_table(
        ("task", "held out", "PolarFL", "best tuned", "", "difference", ""),
        [
            (
                each.task,
                "yes" if each.held_out else "",
                page.accuracy(each.ours),
                page.accuracy(each.best),
                page.title(each.best.method),
                f"{each.ahead:+.3f}",
                each.word,
            )
            for each in found
        ],
        width=WIDTH,
    )


def write_page(args: argparse.Namespace) -> int:
    from tunefree_evidence.challenge.folder import publish

    try:
        files = publish(args.out, args.page)
    except OSError as error:
        raise ConfigError(f"-o '{args.page}' cannot be written ({error.strerror})") from error
    names = [str(file) for file in files]
    print(json.dumps(names) if args.format == "json" else f"wrote {' and '.join(names)}")
    return 0
