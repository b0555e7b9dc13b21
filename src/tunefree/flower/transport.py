"""The server's messages to nodes, and each reply as soon as it is complete."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import entry_points
from typing import NamedTuple, Protocol, TypeVar

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from tunefree.errors import ConfigError

V = TypeVar("V")
log = logging.getLogger("flwr")  # shown by `flwr run --stream`
FRESH = 1.0  # seconds before the list of connected nodes is fetched again
FASTER = "tunefree.grid"  # the entry point of packages that know a faster way than Flower's API


class Sent(NamedTuple):
    """To which node a message was sent, in which of the node's sessions, and when."""

    node: int
    session: str | None
    when: float


class Replies(Protocol):
    """A faster way to a deployed federation's nodes, which waits for no incomplete reply."""

    def nodes(self) -> Mapping[int, str]:
        """The connected nodes, and since when."""

    def pull(self, numbers: Collection[str], most: int) -> Sequence[Message]:
        """The complete replies to these messages; an error for one longer than `most` bytes."""


class Transport:
    """Sends and receives on Flower's Grid."""

    def __init__(self, grid: Grid) -> None:
        self._grid, self._faster = grid, faster(grid)
        self._nodes: Mapping[int, str] = {}
        self._until = 0.0
        self.most = 2**20  # bytes of a reply; only the faster way checks them before it unpacks it

    def nodes(self) -> Mapping[int, str]:
        """The connected nodes, at most FRESH seconds old, and their sessions where known."""
        if time.monotonic() >= self._until:
            if self._faster:
                self._nodes = self._faster.nodes()
            else:
                self._nodes = dict.fromkeys(self._grid.get_node_ids(), "")
            self._until = time.monotonic() + FRESH
        return self._nodes

    def send(
        self, contents: Mapping[int, RecordDict], kind: str, ttl: float | None = None
    ) -> dict[str, Sent]:
        """Send each node its message; returns those that could be sent, by message number."""
        if not contents:
            return {}
        sessions, now = self.nodes(), time.monotonic()
        messages = [Message(content, node, kind, ttl=ttl) for node, content in contents.items()]
        return {
            number: Sent(node, sessions.get(node), now)
            for number, node in zip(self._grid.push_messages(messages), contents, strict=True)
            if number
        }

    def take(self, waiting: dict[str, V]) -> list[tuple[V, Message]]:
        """The replies that have arrived, each with what waited for it, which waits no longer."""
        if not waiting:
            return []
        if self._faster:
            come = self._faster.pull(waiting.keys(), self.most)
        else:
            come = list(self._grid.pull_messages(waiting.keys()))
        replies = {reply.metadata.reply_to_message_id: reply for reply in come}
        return [(waiting.pop(n), reply) for n, reply in replies.items() if n in waiting]

    def gone(self, sent: Sent) -> bool:
        """Whether its node has disconnected; one that reconnected no longer has the message."""
        return self.nodes().get(sent.node) != sent.session


def faster(grid: Grid) -> Replies | None:
    """A faster way to this Grid's nodes, if there is one for the Flower that is installed."""
    for offer in entry_points(group=FASTER):
        try:
            found: Replies | None = offer.load()(grid)
        except ConfigError as error:
            log.warning("%s; replies come through Flower's public API, which is slower", error)
        else:
            return found
    return None
