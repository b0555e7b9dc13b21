"""The nodes of a Flower federation: who is connected, and which client each of them is."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence

from flwr.app import ConfigRecord, Message, MessageType, RecordDict

from tunefree.errors import FleetError
from tunefree.flower.envelope import MOST
from tunefree.flower.pace import Pace
from tunefree.flower.post import Post

log = logging.getLogger("flwr")  # what `flwr run --stream` shows
AGAIN = 60.0  # seconds until a node that has not said who it is gets asked again


class Nodes:
    """Which clients are connected, by number; each is asked once who it is.

    A client is known by the partition-id of its node's config, or else by its node. Numbers are
    given in the order of partition-ids at the start, and in the order of arrival later.
    """

    def __init__(self, post: Post, names: Sequence[str], sizes: Sequence[int] = ()) -> None:
        """`names` and `sizes`, where they are asked for, are of clients known from before."""
        self._post = post
        self.names = list(names)
        self._sizes = dict(zip(names, sizes, strict=False))  # samples that a client said it holds
        self._asked: dict[str, tuple[int, float]] = {}  # message -> node, and when to ask again
        self._said: dict[int, str] = {}  # node -> name
        self.refused: dict[int, str] = {}  # node -> why
        self.there: dict[str, int] = {}  # name -> node, at the last look

    def look(self) -> dict[str, int]:
        """The node of every client that is there and has said who it is."""
        nodes = self._post.nodes().keys()
        for reply in self._post.come(list(self._asked)):
            node, _ = self._asked.pop(reply.metadata.reply_to_message_id)
            if reply.has_error():
                self.refused[node] = last_line(reply.error.reason)
            else:
                self._said[node] = name = name_of(reply.content, node)
                self.refused.pop(node, None)
                if n := samples_of(reply.content):
                    self._sizes.setdefault(name, n)
        now = time.monotonic()
        self._asked = {n: asked for n, asked in self._asked.items() if asked[1] > now}
        strangers = sorted(nodes - set(self._said) - {node for node, _ in self._asked.values()})
        question = RecordDict({"tunefree": ConfigRecord({"who": "are you"})})
        messages = [Message(question, node, MessageType.QUERY) for node in strangers]
        for number, node in zip(self._post.send(messages), strangers, strict=True):
            if number is not None:
                self._asked[number] = (node, now + AGAIN)
        there: dict[str, int] = {}
        for node in sorted(nodes & set(self._said)):
            name = self._said[node]
            if name in there:
                if node not in self.refused:
                    log.warning("node %d is left out: %s is connected already", node, name)
                self.refused[node] = f"{name} is connected already, as node {there[name]}"
            else:
                there[name] = node
        self.refused = {node: why for node, why in self.refused.items() if node in nodes}
        for name in sorted(set(there) ^ set(self.there), key=in_order):
            log.info("%s %s", name, "has come" if name in there else "is gone")
        self.there = there
        return there

    def connected(self) -> dict[int, int]:
        """Client -> node of those who have a number."""
        numbers = {name: client for client, name in enumerate(self.names)}
        return {numbers[name]: node for name, node in self.look().items() if name in numbers}

    def number_newcomers(self) -> None:
        """Give a number to everyone who is there and has none."""
        self.names += sorted(set(self.look()) - set(self.names), key=in_order)

    def sizes(self, N: int) -> list[int]:
        """How many samples each of the first N clients holds, as it said when it came."""
        missing = [name for name in self.names[:N] if name not in self._sizes]
        if missing:
            raise FleetError(
                f"{missing[0]} did not say how many samples it holds, which local-epochs and "
                "sampling = 'examples' need; install this tunefree on its machine too"
            )
        return [self._sizes[name] for name in self.names[:N]]

    def gather(self, least: int, wait: float) -> None:
        """Wait until so many clients are there, and give each a number if it has none."""
        end, pace, known = time.monotonic() + wait, Pace(longest=0.5), -1
        while len(there := self.look()) < least:
            if time.monotonic() > end:
                failed = "".join(f" (node {n}: {why})" for n, why in self.refused.items())
                raise FleetError(
                    f"{len(there)} of {least} clients came within {wait:g} s{failed}; start more "
                    "nodes, or lower the run config's clients; the run can be started again"
                )
            if len(there) != known:
                known = len(there)
                pace.news()
                log.info("waiting for clients: %d of %d are here", known, least)
            time.sleep(pace.pause())
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


def samples_of(content: RecordDict) -> int:
    """What a client said of its samples; 0 if nothing that could be."""
    words = content.get("tunefree")
    n = words.get("samples", 0) if isinstance(words, ConfigRecord) else 0
    return n if type(n) is int and 0 < n < MOST else 0


def last_line(reason: str | None) -> str:
    """A client's reason in short; Flower's own node wraps it in the name of its class."""
    lines = [line for line in (reason or "no reason given").strip().splitlines() if line.strip()]
    told = re.fullmatch(r"<class '(?:[\w.]*\.)?(\w+)'>:<'(.*)'>", lines[-1].strip())
    return (": ".join(told.groups()) if told else lines[-1].strip())[:200]
