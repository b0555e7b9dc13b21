"""`tunefree methods`: the methods, their costs and what must be tuned."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from tunefree.cli.tables import Answer, table
from tunefree.errors import ConfigError

COSTS = ("up", "down", "memory")
costs = attrgetter(*COSTS)


def add_to(command: argparse.ArgumentParser) -> None:
    command.set_defaults(act=methods_command)


def methods_command(args: argparse.Namespace) -> Answer:
    from tunefree.testing.cost import entries

    found, rows, below = list[dict[str, Any]](), list[Sequence[str]](), list[str]()
    for entry in entries():
        if isinstance(entry, ConfigError):
            print(f"note: {entry}", file=sys.stderr)
            continue
        name, about, price, package = entry
        steps = {key: step.formula for key, step in about.steps.items()}
        described = {**about._asdict(), **price._asdict(), "steps": steps}
        found.append({"name": name, **described, "package": package})
        grid = ", ".join(about.grid) or "nothing"
        rows.append((name, grid, *(f"{n:.3g}d" for n in costs(price))))
        below.append("; ".join((about.family, about.paper, package)))
    return Answer(found, table(("name", "to tune", *COSTS), rows, COSTS, below))
