"""argv -> settings -> run; prints results to stdout and progress to stderr."""

from __future__ import annotations

import argparse
import difflib
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from tunefree.cli import (
    algorithms,
    bench,
    check,
    compare,
    data,
    export,
    flower,
    report,
    reproduce,
    run,
    runs,
    show,
    sweep,
    tune,
    watch,
)

START = """tunefree: federated learning without learning rates

  tunefree run                       train on the embedded digits data, nothing to tune
  tunefree run --algorithm parfrefl  the same with another method
  tunefree compare polarfl fedavg    several methods, the same data and seeds
  tunefree tune fedavg               search the step sizes of a method that needs them
  tunefree sweep padamfed --over eta how wide is the range of step sizes that work?
  tunefree report runs               run files as one page of figures and tables
  tunefree watch runs                the same page, live, while the runs go on
  tunefree runs                      what was run, and how it ended
  tunefree reproduce list            the papers' claims; `reproduce 24` plays and decides one
  tunefree algorithms                all methods: what they cost, what they need tuned
  tunefree data list                 data sets by name
  tunefree check NAME                does an algorithm, ours or yours, keep the contract?
  tunefree bench                     our speed beside the loop that everybody writes
  tunefree flower new DIR            an app for a real federation; `flower up` tries it here
  tunefree COMMAND --help            every setting of a command
"""


class Parser(argparse.ArgumentParser):
    """Takes flags by their whole names; says what is wrong in one sentence and exits with 2."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        named = [word.rstrip(":") for word in message.split() if word.startswith("--")]
        flags = flags_of(self)
        wrong = [word for word in named[:1] if word not in flags]
        near = difflib.get_close_matches(wrong[0], flags, n=1) if wrong else []
        hint = f"; did you mean {near[0]}?" if near else ""
        self.exit(2, f"{self.prog}: {message}{hint} (see {self.prog} --help)\n")


def flags_of(parser: argparse.ArgumentParser) -> list[str]:
    """The flags of a parser and of its commands."""
    flags = [flag for action in parser._actions for flag in action.option_strings]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            flags += [flag for command in action.choices.values() for flag in flags_of(command)]
    return flags


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; exit code 0 done, 1 failed, 2 bad usage."""
    args = parser().parse_args(argv)
    if args.command is None:
        print(START, end="")
        return 0
    from tunefree.errors import ConfigError, FleetError, RecordError, WireError

    warnings.showwarning = lambda message, *_: print(f"note: {message}", file=sys.stderr)
    try:
        code: int = args.act(args)
        return code
    except ConfigError as error:
        print(f"tunefree: {error}", file=sys.stderr)
        return 2
    except (WireError, FleetError, RecordError) as error:
        print(f"tunefree: {error}", file=sys.stderr)
        return 1


def parser() -> Parser:
    top = Parser(prog="tunefree", description="Federated learning without learning rates.")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)

    for name, module, about in (
        ("run", run, "train a model on a federation"),
        ("compare", compare, "several methods side by side, on the same data and seeds"),
        ("tune", tune, "search the step sizes of a method that needs them"),
        ("sweep", sweep, "accuracy against step size, and the width of the range that works"),
        ("report", report, "run files as one HTML page of figures and tables"),
        ("watch", watch, "the same page, live, while runs are being written"),
        ("runs", runs, "the runs in a folder and how they ended"),
        ("show", show, "what a run file holds"),
        ("export", export, "a run's history as a table or for TensorBoard, its model as tensors"),
        ("reproduce", reproduce, "the papers' claims, played and decided"),
        ("algorithms", algorithms, "the methods and what they cost"),
        ("data", data, "data sets: list them, get one, look at one"),
        ("check", check, "does an algorithm, ours or yours, keep the contract?"),
        ("bench", bench, "measure our speed on this machine"),
        ("flower", flower, "real federations: begin an app, try it on this machine"),
    ):
        command = commands.add_parser(name, help=about)
        module.add_to(command)
        command.add_argument(
            "--format", choices=("text", "json"), default="text", help="of results"
        )
    return top
