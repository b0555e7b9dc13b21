"""A federation in this process: nodes with files, and a server, which talk in bytes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("cryptography")

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tunefree.errors import WireError
from tunefree.secure.arithmetic import Words, to_integers
from tunefree.secure.messages import Prekey, Terms, Turn
from tunefree.secure.node import Node
from tunefree.secure.roster import Identity, Roster
from tunefree.secure.server import Attempt, Pool

DOWN = b"the model"
RUN = "run-1"
P = ParamSpec("P")
Told = Callable[[int, bytes], bytes]  # what a server makes of a message to one client
Dropped = Collection[int]


@dataclass
class Federation:
    """n nodes, their files in a folder, and the server's pool of prekeys."""

    folder: Path
    n: int
    minimum: int = 3
    counts: tuple[int, ...] = (40, 3)
    identities: dict[int, Identity] = field(default_factory=dict)
    nodes: dict[int, Node] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ids = [3 * i + 1 for i in range(self.n)]
        self.identities = {i: Identity(Ed25519PrivateKey.generate()) for i in ids}
        self.roster = Roster("hospitals", {i: key.public for i, key in self.identities.items()})
        self.terms = Terms(
            self.n, 0.0, self.counts, tuple(1.0 + k for k, _ in enumerate(self.counts))
        )
        for i in ids:
            self.open(i)
        self.pool = Pool(self.roster, RUN)
        for i, node in self.nodes.items():
            self.pool.receive(i, node.prekeys(RUN, 4))
        rng = np.random.default_rng(0)
        self.values: dict[int, list[NDArray[np.float32]]] = {
            i: [
                (bound * rng.uniform(-1, 1, count)).astype(np.float32)
                for count, bound in zip(self.terms.counts, self.terms.bounds, strict=True)
            ]
            for i in ids
        }

    def open(self, i: int) -> Node:
        """The node as it is after a restart."""
        if i in self.nodes:
            self.nodes[i].close()
        path = self.folder / f"{i}.sqlite"
        self.nodes[i] = Node(path, self.identities[i], self.roster, i, self.minimum)
        return self.nodes[i]

    @property
    def ids(self) -> list[int]:
        return sorted(self.nodes)

    def attempt(
        self,
        round: int = 1,
        attempt: int = 0,
        of: Sequence[int] | None = None,
        cohort: tuple[Prekey, ...] | None = None,
    ) -> Attempt:
        keys = self.pool.take(self.ids if of is None else of) if cohort is None else cohort
        return Attempt.of(self.roster, Turn(RUN, round, attempt), self.terms, keys)

    def join(self, attempt: Attempt, without: Dropped = (), told: Told | None = None) -> None:
        for i in self.ids:
            if i not in without and i in attempt.cohort.keys:
                attempt.receive(i, self.nodes[i].join(said(told, i, attempt.invite)))

    def upload(
        self,
        attempt: Attempt,
        without: Dropped = (),
        told: Told | None = None,
        down: Callable[[int], bytes] = lambda i: DOWN,
    ) -> None:
        for i, request in attempt.deliver(DOWN).items():
            if i not in without:
                upload = self.nodes[i].upload(said(told, i, request), down(i), self.values[i])
                attempt.receive(i, upload)

    def agree(self, attempt: Attempt, without: Dropped = (), told: Told | None = None) -> None:
        request = attempt.agree()
        for i in attempt.asked:
            if i not in without:
                attempt.receive(i, self.nodes[i].agree(said(told, i, request)))

    def open_sum(self, attempt: Attempt, without: Dropped = (), told: Told | None = None) -> None:
        request = attempt.open()
        for i in attempt.asked:
            if i not in without:
                attempt.receive(i, self.nodes[i].open(said(told, i, request)))

    def play(self, attempt: Attempt) -> Words:
        self.join(attempt)
        self.upload(attempt)
        self.agree(attempt)
        self.open_sum(attempt)
        return attempt.integers()

    def plain(self, ids: Collection[int]) -> Words:
        """The sum of the same integers without masks."""
        total = np.zeros(sum(self.counts), np.uint32)
        for i in ids:
            total += to_integers(self.values[i], self.terms)
        return total

    def memory(self, i: int) -> list[Any]:
        """All that is in a node's file."""
        return list(self.nodes[i]._db.iterdump())


def said(told: Told | None, i: int, message: bytes) -> bytes:
    return message if told is None else told(i, message)


def refused(
    federation: Federation,
    i: int,
    match: str,
    step: Callable[P, object],
    *args: P.args,
    **named: P.kwargs,
) -> None:
    """The node says no in one sentence, and its file stays as it is."""
    before = federation.memory(i)
    with pytest.raises(WireError, match=match) as caught:
        step(*args, **named)
    assert "\n" not in str(caught.value)
    assert federation.memory(i) == before
