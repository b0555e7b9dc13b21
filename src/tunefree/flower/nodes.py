"""The nodes of a Flower federation: who is connected, and which client each of them is."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from statistics import median_low
from typing import Any

from flwr.app import ConfigRecord, MessageType, RecordDict

from tunefree.errors import FleetError
from tunefree.flower.envelope import MOST
from tunefree.flower.log import cleaned
from tunefree.flower.pace import Pace
from tunefree.flower.transport import Sent, Transport

log = logging.getLogger("flwr")  # shown by `flwr run --stream`
NO_PLACE = "a private run counts by partition-id how often a client takes part; give it one"
TIMES = 10  # the median number of samples
AGAIN = 60.0  # seconds before a node that has not answered is asked again which client it is


class Nodes:
    """Which clients are connected, by number; each node is asked once which client it is.

    A client is named by the partition-id of its node's config, or else by its node. Numbers are
    given in the order of partition-ids at the start, and in the order of arrival later.
    """

    def __init__(
        self,
        transport: Transport,
        names: Sequence[str],
        sizes: Sequence[int],
        need_place: bool = False,
    ) -> None:
        """`names`, and `sizes` where they are needed, are those of clients in the run file.

        `need_place` refuses clients without a partition-id, who may get another name when they
        return: what a client has given away could not be counted.
        """
        self._transport = transport
        self.names, self._need_place = list(names), need_place
        self._sizes = dict(zip(names, sizes, strict=False))  # samples, as each client reported
        self._asked: dict[str, Sent] = {}
        self._names: dict[int, str] = {}  # by node
        self.refused: dict[int, str] = {}  # node -> why
        self.there: dict[str, int] = {}  # name -> node, as of the last update

    def update(self) -> dict[str, int]:
        """The node of every connected client; asks new nodes which client they are."""
        nodes = self._transport.nodes().keys()
        self._hear()
        self._ask(nodes - self._names.keys())
        there: dict[str, int] = {}
        for node in sorted(nodes & self._names.keys()):
            name = self._names[node]
            if (first := there.setdefault(name, node)) != node:
                if node not in self.refused:
                    log.warning("node %d is refused: %s is connected already", node, name)
                self.refused[node] = f"{name} is connected already, as node {first}"
        self.refused = {node: why for node, why in self.refused.items() if node in nodes}
        for name in sorted(there.keys() ^ self.there.keys(), key=in_order):
            log.info("%s %s", name, "connected" if name in there else "disconnected")
        self.there = there
        return there

    def _hear(self) -> None:
        """Read the answers of nodes that were asked."""
        for (node, *_), reply in self._transport.take(self._asked):
            if reply.has_error():
                self.refused[node] = last_line(reply.error.reason)
                continue
            self.refused.pop(node, None)
            if self._need_place and number_in(reply.content, "place") is None:
                self.refused[node] = NO_PLACE
                continue
            self._names[node] = name = name_of(reply.content, node)
            if n := number_in(reply.content, "samples"):
                self._sizes.setdefault(name, n)

    def _ask(self, unknown: set[int]) -> None:
        """Ask these nodes which client they are, except those that were asked recently."""
        since = time.monotonic() - AGAIN
        self._asked = {number: sent for number, sent in self._asked.items() if sent.when > since}
        question = RecordDict({"tunefree": ConfigRecord({"who": "are you"})})
        asked = unknown - {sent.node for sent in self._asked.values()}
        self._asked |= self._transport.send(
            dict.fromkeys(sorted(asked), question), MessageType.QUERY
        )

    def connected(self) -> dict[int, int]:
        """Client -> node, of the connected clients that have a number."""
        there = self.update()
        return {client: there[name] for client, name in enumerate(self.names) if name in there}

    def number_newcomers(self) -> None:
        """Give a number to every connected client that has none."""
        self.names += sorted(self.update().keys() - set(self.names), key=in_order)

    def sizes(self, N: int) -> list[int]:
        """How many samples each of the first N clients has, as it reported when it connected."""
        missing = [name for name in self.names[:N] if name not in self._sizes]
        if missing:
            raise FleetError(
                f"{missing[0]} did not report how many samples it has, which local_epochs, and "
                "sampling or weighting by examples, need; install this version of tunefree on its "
                "machine too"
            )
        return [self._sizes[name] for name in self.names[:N]]

    def trusted(self, client: int, n: int) -> int:
        """A client's samples as weights count them: no more than it said when it connected, and no
        more than TIMES the median of what all said.
        """
        said = self._sizes.setdefault(self.names[client], n)
        return min(n, said, TIMES * median_low(self._sizes.values()))

    def gather(self, least: int, wait: float) -> None:
        """Wait until so many clients are connected, and give them numbers if none has one."""
        end, pace, known = time.monotonic() + wait, Pace(longest=0.5), -1
        while len(there := self.update()) < least:
            if time.monotonic() > end:
                failed = "".join(f" (node {n}: {why})" for n, why in self.refused.items())
                raise FleetError(
                    f"{len(there)} of {least} clients connected within {wait:g} s{failed}; start "
                    "more nodes, or lower the run config's clients, and start the run again"
                )
            if news := len(there) != known:
                known = len(there)
                log.info("waiting for clients: %d of %d connected", known, least)
            pace.rest(news)
        if not self.names:
            self.names = sorted(there, key=in_order)


def in_order(name: str) -> tuple[bool, int]:
    kind, _, number = name.partition(" ")
    return kind != "partition", int(number)


def place_of(name: str) -> int:
    """The partition-id in a client's name; -1 if its node has none."""
    is_node, number = in_order(name)
    return -1 if is_node else number


def name_of(content: RecordDict, node: int) -> str:
    place = number_in(content, "place")
    return f"node {node}" if place is None else f"partition {place}"


def number_in(content: RecordDict, word: str) -> int | None:
    """A number that a client reported, if it is a valid one."""
    words = content.get("tunefree")
    value: Any = words.get(word) if isinstance(words, ConfigRecord) else None
    return value if type(value) is int and 0 <= value < MOST else None


def last_line(reason: str | None) -> str:
    """The last line of a client's error, without the class that Flower's node puts around it."""
    lines = [line for line in (reason or "no reason given").strip().splitlines() if line.strip()]
    match = re.fullmatch(r"<class '(?:[\w.]*\.)?(\w+)'>:<'(.*)'>", lines[-1].strip())
    return cleaned(": ".join(match.groups()) if match else lines[-1])
