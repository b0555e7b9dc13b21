"""`tunefree check`: test an algorithm, ours or the user's, against the contract."""

from __future__ import annotations

import argparse

from tunefree.cli import flags
from tunefree.cli.tables import Answer


def add_to(command: argparse.ArgumentParser) -> None:
    where = "a name from `tunefree methods`, or module:Class importable from this folder"
    flags.add(command, "NAME", where)
    flags.add(command, "--pool", "also run it on worker processes")
    command.set_defaults(act=check_command)


def check_command(args: argparse.Namespace) -> Answer:
    from tunefree.testing.check import findings

    rows = list(findings(args.name, args.pool))
    lines = [f"{check}: {complaint or 'ok'}" for check, complaint in rows]
    failed = any(complaint for _, complaint in rows)
    return Answer([row._asdict() for row in rows], lines, failed)
