"""Our own Flower node, bound to the versions of Flower that it was written for.

It uses names that Flower does not publish, which is why nothing but the commands that start nodes
imports it, and why these check the version first. A ServerApp finds `faster` as an entry point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunefree.errors import ConfigError
from tunefree.node.versions import problem

if TYPE_CHECKING:
    from flwr.serverapp import Grid

    from tunefree.node.replies import Replies


def faster(grid: Grid) -> Replies | None:
    """The replies of a deployed federation; None for any other Grid, such as a simulation's."""
    if why := problem():
        raise ConfigError(why)
    from tunefree.node.replies import of_grid

    return of_grid(grid)
