"""argv -> settings -> run; results go to stdout, progress to stderr."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import select
import sys
import warnings
from collections.abc import Collection, Sequence
from importlib import import_module, metadata
from typing import Any, NoReturn, TextIO

COMMANDS = (  # how each is typed, and what it does; the first one of a command is its help
    ("run", "train on a federation, by default on the built-in digits"),
    ("run --data table.csv --target label", "the same on your own data"),
    ("run --algorithm parfrefl", "the same with another method"),
    ("compare polarfl fedavg", "several methods, the same data and seeds"),
    ("tune fedavg", "search the step sizes of a method that needs them"),
    ("sweep padamfed --over eta", "how wide the range of step sizes is that work"),
    ("report runs", "run files as one page of figures and tables"),
    ("watch runs", "the same page, live, while runs are training"),
    ("runs", "the runs in a folder and how they ended"),
    ("show FILE", "a run in words; --clients: scores of each client"),
    ("export FILE --csv X", "its history as a table; --state-dict X: its model"),
    ("methods", "all methods: their costs and what must be tuned"),
    ("data list", "data sets by name: list, download or show them"),
    ("check NAME", "test an algorithm, ours or yours, against the contract"),
    ("privacy plan", "noise, rounds and clients for a privacy budget"),
    ("privacy audit", "attack the mechanism: epsilon has to hold"),
    ("flower new DIR", "an app for a real federation; `flower up` tries it here"),
)
FORMER = {  # commands of version 0.2.0
    "algorithms": "tunefree methods",
    "bench": "tunefree-evidence speed",
    "challenge": "tunefree-evidence challenge",
    "reproduce": "tunefree-evidence claims",
}
STEP_FLAGS = ("--lr", "--learning-rate", "--eta", "--gamma", "--step-size", "--local-lr")


class Parser(argparse.ArgumentParser):
    """Takes flags by their full names; reports an error in one sentence and exits with 2."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """An unknown argument is reported by the command that was typed."""
        known, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return known, rest

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}{self._hint(message)} (see {self.prog} --help)\n")

    def _hint(self, message: str) -> str:
        """What the user may have meant: another flag of this command, or a step size."""
        flags = self._option_string_actions
        named = [re.split("[=:/]", word)[0] for word in message.split() if word.startswith("--")]
        wrong = [word for word in named[:1] if word not in flags]
        if wrong and wrong[0].replace("_", "-") in STEP_FLAGS and "--set" in flags:
            example = "--set option.eta=0.1" if "--algorithm" in flags else "in fedavg:eta=0.1"
            return (
                "; step sizes follow from --per-round and --local-steps, and a method that needs "
                f"one takes it as {example}"
            )
        choice = re.search("invalid choice: '(.*?)' ", message)
        asked = wrong[0] if wrong else choice[1] if choice else ""
        if asked in FORMER:
            return f"; it is now `{FORMER[asked]}`"
        known = flags if wrong else re.findall("'(.*?)'", message)[1:]
        names = {name.lstrip("-"): name for name in known}
        near = difflib.get_close_matches(asked.lstrip("-"), names, n=1)
        return f"; did you mean {names[near[0]]}?" if near else ""


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments of the command that was typed."""
    words = [*(sys.argv[1:] if argv is None else argv)]
    top = parser(words[:1])
    if words and words[0].startswith("--") and words[0] not in top._option_string_actions:
        top.error(f"{words[0]} needs a command before it, as in `tunefree run {words[0]} ...`")
    return top.parse_args(words)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; exit code 0 if done, 1 if failed, 2 for bad usage.

    A reader that ends early, as in `tunefree runs | head`, ends the command without a traceback.
    """
    try:
        try:
            return act(parse(argv))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        closed = [stream for stream in (sys.stdout, sys.stderr) if is_broken(stream)]
        if not closed:  # another pipe, such as a worker's
            raise
        for stream in closed:  # so that Python does not write to it again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return 1


def is_broken(stream: TextIO) -> bool:
    """Whether this stream is a pipe that nobody reads any more."""
    if not hasattr(select, "poll"):
        return True
    watch = select.poll()
    watch.register(stream.fileno(), 0)
    return any(event & select.POLLERR for _, event in watch.poll(0))


def start() -> str:
    """What `tunefree` alone prints: where to start."""
    more = (("COMMAND --help", "all settings of a command"), ("--version", "the version"))
    lines = [f"  tunefree {words:<25} {about}" for words, about in (*COMMANDS, *more)]
    return "\n".join(["tunefree: federated learning without learning rates", "", *lines])


def act(args: argparse.Namespace) -> int:
    """Do what the command says and print its answer; every error is one sentence."""
    from tunefree.cli.flags import spelling
    from tunefree.errors import ConfigError, TunefreeError

    if args.version or args.command is None:
        print(f"tunefree {metadata.version('tunefree')}" if args.version else start())
        return 0
    warnings.showwarning = lambda message, *_: print(f"note: {message}", file=sys.stderr)
    try:
        answer = args.act(args)
        return answer if isinstance(answer, int) else int(answer.printed(args.format))
    except KeyboardInterrupt:
        if not hasattr(args, "saved_in"):
            raise
        saved = f"everything so far is saved in {args.saved_in}; the same command resumes it"
        print(f"\ninterrupted; {saved}", file=sys.stderr)
        return 130
    except ConfigError as error:
        print(f"tunefree: {error.rendered(spelling(args))}", file=sys.stderr)
        return 2
    except TunefreeError as error:
        print(f"tunefree: {error}", file=sys.stderr)
        return 1


def parser(complete: Collection[str] | None = None) -> Parser:
    """The whole command line; or with the arguments of these commands only, which is faster."""
    from tunefree.cli.flags import add_format

    top = Parser(prog="tunefree", description="Federated learning without learning rates.")
    top.add_argument("--version", action="store_true", help="print the version")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for words, about in COMMANDS:
        name = words.split()[0]
        if name in commands.choices:
            continue
        command = commands.add_parser(name, help=about)
        if complete is None or name in complete:
            import_module(f"tunefree.cli.{name}").add_to(command)
            add_format(command)
    return top
