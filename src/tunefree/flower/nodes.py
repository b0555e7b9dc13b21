"""The nodes of a Flower federation: who is connected, and which client each of them is."""

from __future__ import annotations

import time
from collections.abc import Sequence

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from tunefree.errors import FleetError
from tunefree.flower.envelope import MOST

PAUSE = 0.2  # seconds between two looks at what has come
AGAIN = 60.0  # seconds until a node that has not said who it is gets asked again


class Nodes:
    """Which clients are connected, by number; each is asked once who it is.

    A client is known by the partition-id of its node's config, or else by its node. Numbers are
    given in the order of partition-ids at the start, and in the order of arrival later.
    """

    def __init__(self, grid: Grid, names: Sequence[str]) -> None:
        self._grid = grid
        self.names = list(names)
        self._asked: dict[str, tuple[int, float]] = {}  # message -> node, and when to ask again
        self._said: dict[int, str] = {}  # node -> name
        self.refused: dict[int, str] = {}  # node -> why

    def look(self) -> dict[str, int]:
        """The node of every client that is there and has said who it is."""
        nodes = set(self._grid.get_node_ids())
        for reply in pull(self._grid, list(self._asked)):
            node, _ = self._asked.pop(reply.metadata.reply_to_message_id)
            if not reply.has_error():
                self._said[node] = name_of(reply.content, node)
        now = time.monotonic()
        self._asked = {n: asked for n, asked in self._asked.items() if asked[1] > now}
        for node in nodes - set(self._said) - {node for node, _ in self._asked.values()}:
            record = RecordDict({"tunefree": ConfigRecord({"who": "are you"})})
            message = Message(record, node, MessageType.QUERY)
            for number in self._grid.push_messages([message]):
                if number is not None:
                    self._asked[number] = (node, now + AGAIN)
        there: dict[str, int] = {}
        for node in sorted(nodes & set(self._said)):
            name = self._said[node]
            if name in there:
                self.refused[node] = f"{name} is connected already, as node {there[name]}"
            else:
                there[name] = node
        return there

    def connected(self) -> dict[int, int]:
        """Client -> node of those who have a number."""
        numbers = {name: client for client, name in enumerate(self.names)}
        return {numbers[name]: node for name, node in self.look().items() if name in numbers}

    def number_newcomers(self) -> None:
        """Give a number to everyone who is there and has none."""
        self.names += sorted(set(self.look()) - set(self.names), key=in_order)

    def gather(self, least: int, wait: float) -> None:
        """Wait until so many clients are there, and give each a number if it has none."""
        end = time.monotonic() + wait
        while len(there := self.look()) < least:
            if time.monotonic() > end:
                raise FleetError(
                    f"{len(there)} of {least} clients came within {wait:g} s; start more "
                    "SuperNodes, or lower the run config's clients; the run can be started again"
                )
            time.sleep(PAUSE)
        if not self.names:
            self.names = sorted(there, key=in_order)


def in_order(name: str) -> tuple[bool, int]:
    kind, _, number = name.partition(" ")
    return kind != "partition", int(number)


def name_of(content: RecordDict, node: int) -> str:
    words = content.get("tunefree")
    place = words.get("place", -1) if isinstance(words, ConfigRecord) else -1
    if type(place) is int and 0 <= place < MOST:
        return f"partition {place}"
    return f"node {node}"


def pull(grid: Grid, numbers: Sequence[str]) -> list[Message]:
    return list(grid.pull_messages(numbers)) if numbers else []
