"""`tunefree algorithms`: the methods, their costs and what must be tuned."""

from __future__ import annotations

import argparse
import json

from tunefree.cli.tables import print_entries


def add_to(command: argparse.ArgumentParser) -> None:
    command.set_defaults(act=algorithms_command)


def algorithms_command(args: argparse.Namespace) -> int:
    from tunefree.testing.cost import catalog

    entries = catalog()
    if args.format == "json":
        rows = [{"name": name, **a._asdict(), **price._asdict()} for name, a, price in entries]
        print(json.dumps(rows))
        return 0
    print_entries(
        ("name", "to tune", "up", "down", "memory"),
        [
            (
                *(name, ", ".join(about.grid) or "nothing"),
                *(f"{number:.3g}d" for number in (price.up, price.down, price.memory)),
            )
            for name, about, price in entries
        ],
        [f"{about.family}; {about.paper}" for _, about, _ in entries],
        right=("up", "down", "memory"),
    )
    return 0
