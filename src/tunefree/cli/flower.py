"""`tunefree flower`: a Flower app to begin with, and a whole federation on this machine."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from tunefree.errors import ConfigError


def add_to(command: argparse.ArgumentParser) -> None:
    verbs = command.add_subparsers(dest="verb", metavar="VERB", required=True)
    new = verbs.add_parser("new", help="write a small, complete Flower app to edit")
    new.add_argument("folder", type=Path, metavar="DIR", help="a folder of its own")
    new.set_defaults(act=new_command)
    up = verbs.add_parser("up", help="SuperLink and SuperNodes on this machine, one run, all down")
    up.add_argument("app", nargs="?", type=Path, default=Path(), metavar="APP", help="its folder")
    up.add_argument("--nodes", type=int, default=4, metavar="N", help="SuperNodes (default 4)")
    up.add_argument("--tls", action="store_true", help="with fresh certificates")
    up.add_argument("--auth", action="store_true", help="and node keys; others are refused")
    up.add_argument("--folder", type=Path, metavar="DIR", help="of keys, logs, stores and the run")
    up.add_argument("--run-config", default="", metavar="'KEY=VALUE ...'", help="as for flwr run")
    up.set_defaults(act=up_command)
    for verb in (new, up):
        verb.add_argument("--format", choices=("text", "json"), default="text", help="of results")


def new_command(args: argparse.Namespace) -> int:
    from tunefree.flower.new_app import new_app

    files = [str(file) for file in new_app(args.folder)]
    if args.format == "json":
        print(json.dumps({"files": files}))
    else:
        print("\n".join(files))
        print(f"next: tunefree flower up {args.folder} --nodes 4 --tls --auth")
    return 0


def up_command(args: argparse.Namespace) -> int:
    if not (args.app / "pyproject.toml").is_file():
        raise ConfigError(
            f"'{args.app}' holds no pyproject.toml; give the folder of a Flower app, or make one: "
            "tunefree flower new DIR"
        )
    if args.nodes < 1:
        raise ConfigError(f"--nodes {args.nodes} is too small; it must be at least 1")
    if args.auth and not args.tls:
        raise ConfigError("--auth needs --tls: keys mean nothing on a wire that anyone can read")
    try:
        from tunefree.flower.local.up import up
    except ImportError as error:
        raise ConfigError(
            f"Flower is not installed ({error}); install it: pip install 'tunefree[flower]'"
        ) from error
    folder = args.folder or args.app / "federation"
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill takes all down too
    try:
        out = up(args.app, folder, args.nodes, args.tls, args.auth, args.run_config)
    except KeyboardInterrupt:
        print(
            f"\ninterrupted, and all taken down; the run in {folder} goes on with the same command",
            file=sys.stderr,
        )
        return 130
    result = outcome(out)
    print(json.dumps(result) if args.format == "json" else closing_words(result))
    return 0 if result["state"] == "done" else 1


def outcome(path: Path) -> dict[str, Any]:
    from tunefree.record import Record

    with closing(Record.open(path)) as record:
        last = record.history()[-1] if record.history() else {}
        return {
            "run": str(path),
            "state": record.state,
            "rounds": int(last.get("t", -1)) + 1,
            "system": record.facts().get("system"),
            "accuracy": last.get("accuracy"),
            "loss": last.get("loss"),
            "bits_up": last.get("bits_up"),
            "bits_down": last.get("bits_down"),
            "seconds": last.get("seconds"),
            "absent": len(record.absences()),
        }


def closing_words(result: dict[str, Any]) -> str:
    from tunefree.cli.run import size

    lines = [f"{result['state']} after round {result['rounds']}"]
    if result["accuracy"] is not None:
        lines[0] += f": test accuracy {result['accuracy']:.4f}, loss {result['loss']:.4f}"
    if result["seconds"]:
        lines += [
            f"  sent {size(result['bits_up'])} up and {size(result['bits_down'])} down in "
            f"{result['seconds']:.0f} s; {result['absent']} replies were missing or refused",
        ]
    return "\n".join(
        [*lines, f"  run file {result['run']}", f"next: tunefree show {result['run']}"]
    )
