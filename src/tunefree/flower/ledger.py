"""The server's ledger: how many clients there are, which reply of each it used last, and the share
of each in its means.

Some fields of a server are the mean of a field over all N clients (`About.means`); uploads only
change them by increments. So that the mean stays correct when a client joins late or returns
without its state, the ledger stores each client's share: the sum of what was accepted from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from tunefree.core import (
    Algorithm,
    Reply,
    Server,
    Share,
    Vec,
    Vectors,
    about,
    alone,
    own,
    share,
)
from tunefree.fleet.job import Done, Job, Key, exchanges
from tunefree.fleet.states import field as restored
from tunefree.record import ACK, SERVER

COUNT = "N"  # a field of the server, besides its own
BuildFor: TypeAlias = Callable[[int], Algorithm]  # the algorithm for N clients


class Ledger:
    """What the server stores about its clients, which store their own states themselves.

    A client's last accepted reply is acknowledged only once that is on disk: `stored` waits for it.
    """

    def __init__(
        self,
        build: BuildFor,
        theta0: Vec,
        stored: Callable[[int], Vectors],
        secure: bool = False,
    ) -> None:
        """With `secure` sums nobody's share is known: who has lost its state cannot return."""
        self._secure = secure
        self._build, self._theta0, self._stored = lru_cache(maxsize=1)(build), theta0, stored
        self.N = int(stored(SERVER).get(COUNT, 0))  # clients that have joined; 0 before the start
        self.lost: set[int] = set()  # clients that reported that they have lost their state
        self._new: dict[int, dict[str, NDArray[Any]]] = {}

    @property
    def algo(self) -> Algorithm:
        """The algorithm for as many clients as have joined."""
        return self._build(self.N)

    def of(self, client: int) -> dict[str, NDArray[Any]]:
        return self._new[client] if client in self._new else dict(self._stored(client))

    def ack(self, client: int) -> Key | None:
        """The key of the client's last accepted reply."""
        key = self.of(client).get(ACK)
        return cast("Key", tuple(key.tolist())) if key is not None and len(key) else None

    def accept(self, used: Sequence[tuple[Job, Done]]) -> None:
        for job, done in used:
            entry = self.of(job.client)
            known = {} if self._secure else shares(self.algo, self._theta0, job, done)
            for field, dc in known.items():
                entry[field] = entry.get(field, 0) + np.asarray(dc)
            self._new[job.client] = {**entry, ACK: np.array(job.key)}

    def enter(self, server: Server, client: int, job: Job | None, done: Done | None) -> Server:
        """The server after this client has joined: a new one, or one that lost its state.

        c <- (N c - its old share + its new share) / (N, or N + 1 for a new client)
        """
        algo, before, N = self.algo, self.of(client), self.N
        self.N = max(N, client + 1)
        self.lost.discard(client)
        fresh = shares(algo, self._theta0, job, done) if job and done else {}
        none = {c: 0 * getattr(own(server), c) for c in about(algo).means}
        old = {c: restored(zero, c, before) if c in before else zero for c, zero in none.items()}
        new = {c: fresh.get(c, zero) for c, zero in none.items()}
        ack = np.array(job.key if job else (), dtype=np.int64)
        self._new[client] = {ACK: ack, **{c: np.asarray(value) for c, value in new.items()}}
        return self.algo.with_share(server, client, old, new, N)

    def new(self) -> dict[int, Vectors]:
        return {**self._new, SERVER: {COUNT: np.array(self.N)}}

    @property
    def full(self) -> bool:
        return False

    def written(self) -> None:
        self._new.clear()


def shares(algo: Algorithm, theta0: Vec, job: Job, done: Done) -> Share:
    """By how much this reply changes N times each mean."""
    one, reply = alone(algo), Reply(job.client, done.n, 0, done.up)
    return share(one, exchanges(one, job.stage, job.t)[job.exchange].up, theta0, reply)
