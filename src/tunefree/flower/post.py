"""The server's post: messages to nodes, and each reply as soon as it is whole."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from flwr.app import Message
from flwr.serverapp import Grid

from tunefree.errors import ConfigError
from tunefree.flower.versions import require

FRESH = 1.0  # seconds that a list of the connected nodes is good for


class Post:
    """Flower's Grid. Where it is one of a real federation of a version that was tried, a reply that
    is not whole yet, because its node died while it sent it, holds up no other.
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
        """Who is connected, or was a moment ago, and since when, where Flower says so.

        A node that has been connected anew has forgotten what it was sent before.
        """
        if time.monotonic() >= self._until:
            if self._replies is None:
                self._nodes = dict.fromkeys(self._grid.get_node_ids(), "")
            else:
                self._nodes = self._replies.nodes()
            self._until = time.monotonic() + FRESH
        return self._nodes

    def send(self, messages: Sequence[Message]) -> list[str | None]:
        """Their numbers; None for one that could not be sent."""
        return list(self._grid.push_messages(messages)) if messages else []

    def come(self, numbers: Sequence[str]) -> list[Message]:
        """Those replies to these messages that are there."""
        if not numbers:
            return []
        if self._replies is not None:
            return list(self._replies.come(numbers))
        return list(self._grid.pull_messages(numbers))
