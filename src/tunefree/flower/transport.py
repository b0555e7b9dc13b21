"""The server's messages to nodes, and each reply as soon as it is complete."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from flwr.app import Message
from flwr.serverapp import Grid

from tunefree.errors import ConfigError
from tunefree.node.versions import require

FRESH = 1.0  # seconds before the list of connected nodes is fetched again


class Transport:
    """Sends and receives on Flower's Grid.

    In a deployed federation of a tested Flower version, a reply that stays incomplete because its
    node died while sending does not delay the others.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._nodes: Mapping[int, str] = {}
        self._until = 0.0
        try:
            self._replies = require().replies(grid)
        except ConfigError:
            self._replies = None

    def nodes(self) -> Mapping[int, str]:
        """The connected nodes, at most FRESH seconds old, and since when, if Flower reports it.

        A node that has reconnected no longer has the messages that it was sent before.
        """
        if time.monotonic() >= self._until:
            if self._replies is None:
                self._nodes = dict.fromkeys(self._grid.get_node_ids(), "")
            else:
                self._nodes = self._replies.nodes()
            self._until = time.monotonic() + FRESH
        return self._nodes

    def send(self, messages: Sequence[Message]) -> list[str | None]:
        """Send the messages; returns their numbers, None for one that could not be sent."""
        return list(self._grid.push_messages(messages)) if messages else []

    def pull(self, numbers: Sequence[str]) -> list[Message]:
        """The replies to these messages that have arrived."""
        if not numbers:
            return []
        if self._replies is not None:
            return list(self._replies.pull(numbers))
        return list(self._grid.pull_messages(numbers))
