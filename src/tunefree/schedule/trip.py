"""One exchange played: the server speaks, a fleet works, the server listens, all is counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from tunefree.core import Algorithm, Exchange, Message, Reply, Server
from tunefree.wire.message import bits, refuse_non_finite

Stage = Literal["opening", "round"]


class Job(NamedTuple):
    """One client's work in one exchange, and everything a worker needs to know of it."""

    client: int
    t: int  # server step of the download; the opening is step -1
    stage: Stage
    exchange: int  # which exchange of that stage
    down: Message

    @property
    def key(self) -> tuple[int, ...]:
        """Names the job's random stream, whoever runs it and whenever."""
        return (self.client, self.t + 1, self.exchange)


class Done(NamedTuple):
    """What a client's work gave: the upload, the samples it holds and those it drew."""

    up: Message
    n: int
    drawn: int


class Fleet(Protocol):
    """Where clients run. A client's new state counts only once its reply has been accepted."""

    def work(self, jobs: Sequence[Job]) -> list[Done]:
        """Do the jobs and return their results in the order of the jobs."""

    def accept(self, clients: Sequence[int]) -> None:
        """The server has used these clients' last replies: their new states are now the old."""


class Traffic(NamedTuple):
    """What one exchange sent in one direction."""

    exchange: int
    direction: Literal["down", "up"]
    messages: int
    bits: int  # of all messages together


class Step(NamedTuple):
    """The server after step t, and what the step took."""

    t: int
    server: Server
    clients: Sequence[int]
    traffic: tuple[Traffic, ...]
    drawn: int  # samples drawn by all clients


def exchanges(algo: Algorithm, stage: Stage) -> tuple[Exchange, ...]:
    return algo.opening() if stage == "opening" else algo.round()


def play(
    algo: Algorithm, fleet: Fleet, server: Server, t: int, stage: Stage, clients: Sequence[int]
) -> Step:
    """All exchanges of a stage, one after the other, with the same clients."""
    traffic: list[Traffic] = []
    drawn = 0
    for number, exchange in enumerate(exchanges(algo, stage)):
        down = exchange.down(server)
        done = fleet.work([Job(client, t, stage, number, down) for client in clients])
        replies = [Reply(i, d.n, 0, d.up) for i, d in zip(clients, done, strict=True)]
        refuse_non_finite(replies, t)
        server = exchange.up(server, replies)
        fleet.accept(clients)
        traffic += [
            Traffic(number, "down", len(clients), len(clients) * bits(down)),
            Traffic(number, "up", len(replies), sum(bits(reply.up) for reply in replies)),
        ]
        drawn += sum(d.drawn for d in done)
    return Step(t, server, clients, tuple(traffic), drawn)
