"""`tunefree methods`: the methods, their costs and what must be tuned."""

from __future__ import annotations

import argparse
from operator import attrgetter

from tunefree.cli.tables import Answer, print_entries

COSTS = ("up", "down", "memory")
costs = attrgetter(*COSTS)


def add_to(command: argparse.ArgumentParser) -> None:
    command.set_defaults(act=methods_command)


def methods_command(args: argparse.Namespace) -> Answer:
    from tunefree.testing.cost import catalog

    entries = catalog()

    def show() -> None:
        rows = [
            (name, ", ".join(about.grid) or "nothing", *(f"{n:.3g}d" for n in costs(price)))
            for name, about, price in entries
        ]
        below = [f"{about.family}; {about.paper}" for _, about, _ in entries]
        print_entries(("name", "to tune", *COSTS), rows, below, right=COSTS)

    found = [{"name": name, **about._asdict(), **price._asdict()} for name, about, price in entries]
    return Answer(found, show)
