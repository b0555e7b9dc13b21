"""The server's books on its clients: who they are, which reply it last used, what they hold in c.

Some fields of a server are the mean of a field over all N clients (`About.means`); uploads only
change them by increments. So that the mean stays true when a client comes late or comes back
without its memory, the books keep each client's share: the sum of what was accepted from it, found
by letting the algorithm listen to that client alone in a federation of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from tunefree.core import Algorithm, Reply, Server, Vec, about
from tunefree.fleet.job import Done, Job, Key, exchanges

ACK = "ack"
Stored = Callable[[int], Mapping[str, NDArray[Any]]]


class Books:
    """Of every client the last accepted reply and its share; what is new since the last commit."""

    def __init__(self, theta0: Vec, N: int, stored: Stored) -> None:
        self.N = N
        self._theta0, self._stored = theta0, stored
        self._new: dict[int, dict[str, NDArray[Any]]] = {}

    def of(self, client: int) -> dict[str, NDArray[Any]]:
        return self._new[client] if client in self._new else dict(self._stored(client))

    def ack(self, client: int) -> Key | None:
        """The key of the client's last accepted reply."""
        kept = self.of(client).get(ACK)
        return cast("Key", tuple(kept.tolist())) if kept is not None and len(kept) else None

    def accept(self, algo: Algorithm, job: Job, done: Done) -> None:
        """The server has used this reply."""
        kept = self.of(job.client)
        for field, dc in shares(algo, self._theta0, job, done).items():
            kept[field] = kept.get(field, 0) + dc.numpy()
        self._new[job.client] = {**kept, ACK: np.array(job.key)}

    def enter(
        self, algo: Algorithm, server: Server, client: int, job: Job | None, done: Done | None
    ) -> Server:
        """The server once this client has begun: a newcomer, or one that lost its memory.

        c <- (N c - its old share + its new share) / (N, or N + 1 for a newcomer)
        """
        before, N = self.of(client), self.N
        self.N = max(N, client + 1)
        fresh = shares(algo, self._theta0, job, done) if job and done else {}
        changed: dict[str, Vec] = {}
        kept: dict[str, NDArray[Any]] = {ACK: np.array(job.key if job else (), dtype=np.int64)}
        for field in means(algo):
            c = getattr(server, field)
            old = torch.from_numpy(before[field]).to(c) if field in before else 0 * c
            new = fresh.get(field, 0 * c)
            changed[field] = (N * c - old + new) / self.N
            kept[field] = new.numpy()
        self._new[client] = kept
        return server._replace(**changed)

    def new(self) -> dict[int, dict[str, NDArray[Any]]]:
        """What must be committed with the server's next state."""
        return dict(self._new)

    def written(self) -> None:
        self._new.clear()


def means(algo: Algorithm) -> Mapping[str, str]:
    """Fields of the server that are the mean of a client's field over all clients."""
    return about(algo).means


def shares(algo: Algorithm, theta0: Vec, job: Job, done: Done) -> dict[str, Vec]:
    """By how much this reply changes N times each mean."""
    if not means(algo):
        return {}
    one = replace(algo, sys=algo.sys._replace(N=1, S=1))
    nothing = one.server(0 * theta0)
    reply = Reply(job.client, done.n, 0, done.up)
    heard = exchanges(one, job.stage)[job.exchange].up(nothing, [reply])
    return {field: getattr(heard, field) for field in means(algo)}
