"""Our own Flower node, bound to the versions of Flower that it was written for.

It uses names that Flower does not publish, which is why nothing but the commands that start nodes
imports it, and why these check the version first. A ServerApp finds `faster` as an entry point.
"""

from __future__ import annotations

import importlib
from importlib import metadata
from typing import TYPE_CHECKING

from tunefree.errors import ConfigError

if TYPE_CHECKING:
    from flwr.serverapp import Grid

    from tunefree.node.replies import Replies

TESTED = ((1, 41), (1, 42))  # versions of Flower
NEEDS = ("connection", "messages", "link", "control", "apps", "replies")  # names Flower may change


def problem() -> str:
    """Why our node cannot work with the Flower that is installed; empty if it can."""
    try:
        version = metadata.version("flwr")
    except metadata.PackageNotFoundError:
        raise ConfigError(
            "Flower is not installed; install it: pip install 'tunefree[flower]'"
        ) from None
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers not in TESTED:
        tested = " and ".join(".".join(map(str, each)) for each in TESTED)
        return f"flwr = {version} was not tested with tunefree's node, only {tested}"
    try:
        for name in NEEDS:
            importlib.import_module(f"tunefree.node.{name}")
    except (ImportError, AttributeError) as error:
        return f"flwr = {version} lacks what tunefree's node needs ({error})"
    return ""


def require() -> None:
    """Refuse a Flower that our node cannot work with."""
    if why := problem():
        raise ConfigError(
            f"{why}; use Flower's own node instead (flower-supernode), which runs the same app, or "
            "install a tested version: pip install 'flwr>=1.41,<1.43'"
        )


def faster(grid: Grid) -> Replies | None:
    """The replies of a deployed federation; None for any other Grid, such as a simulation's."""
    if why := problem():
        raise ConfigError(why)
    from tunefree.node.replies import of_grid

    return of_grid(grid)
