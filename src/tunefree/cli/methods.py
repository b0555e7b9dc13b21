"""`tunefree methods`: the methods, their costs and what must be tuned."""

from __future__ import annotations

import argparse
from operator import attrgetter

from tunefree.cli.tables import Answer, table

COSTS = ("up", "down", "memory")
costs = attrgetter(*COSTS)


def add_to(command: argparse.ArgumentParser) -> None:
    command.set_defaults(act=methods_command)


def methods_command(args: argparse.Namespace) -> Answer:
    from tunefree.testing.cost import catalog

    entries = catalog()
    rows = [
        (name, ", ".join(about.grid) or "nothing", *(f"{n:.3g}d" for n in costs(price)))
        for name, about, price in entries
    ]
    below = [f"{about.family}; {about.paper}" for _, about, _ in entries]
    found = [
        {"name": name, **about._asdict(), **price._asdict()}
        | {"steps": {key: step.formula for key, step in about.steps.items()}}
        for name, about, price in entries
    ]
    return Answer(found, table(("name", "to tune", *COSTS), rows, COSTS, below))
