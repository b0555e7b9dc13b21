"""`tunefree check`: test an algorithm, ours or the user's, against the contract."""

from __future__ import annotations

import argparse
import json


def add_to(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "algorithm",
        metavar="NAME",
        help="a name from `tunefree algorithms`, or module:Class importable from this folder",
    )
    command.add_argument("--pool", action="store_true", help="also run it on worker processes")
    command.set_defaults(act=check_command)


def check_command(args: argparse.Namespace) -> int:
    from tunefree.testing.check import findings

    rows = list(findings(args.algorithm, args.pool))
    if args.format == "json":
        print(json.dumps([row._asdict() for row in rows]))
    else:
        for check, complaint in rows:
            print(f"{check}: {complaint or 'ok'}")
    return int(any(complaint for _, complaint in rows))
