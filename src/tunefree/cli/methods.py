"""`tunefree methods`: the methods, their costs and what must be tuned."""

from __future__ import annotations

import argparse
from operator import attrgetter
from typing import TYPE_CHECKING

from tunefree.cli.tables import Answer, print_entries

if TYPE_CHECKING:
    from tunefree.core import About

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

    found = [
        {"name": name, **about._asdict(), "steps": formulas(about), **price._asdict()}
        for name, about, price in entries
    ]
    return Answer(found, show)


def formulas(about: About) -> dict[str, str]:
    """The formula of each step that is not tuned."""
    return {name: step.formula for name, step in about.steps.items()}
