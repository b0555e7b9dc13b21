"""One exchange played: the server speaks, a fleet works, the server listens, all is counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from tunefree.core import Algorithm, Exchange, Message, Reply, Server
from tunefree.wire.message import bits, refuse_non_finite, value_bits

Stage = Literal["opening", "round"]
Direction = Literal["down", "up"]


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

    def close(self) -> None:
        """End what was started."""


class Traffic(NamedTuple):
    """What one exchange sent in one direction."""

    exchange: int
    direction: Direction
    messages: int
    bits: int  # of all messages together
    value_bits: int  # the same as the papers count, without the positions of sparse values


class Step(NamedTuple):
    """The server after step t, and what the step took."""

    t: int
    server: Server
    clients: Sequence[int]
    traffic: tuple[Traffic, ...]
    drawn: int  # samples drawn by all clients
    time: float = 0.0  # virtual seconds since the start; 0 where nobody has a delay
    staleness: tuple[int, ...] = ()  # of each client's reply: server steps since its download


def exchanges(algo: Algorithm, stage: Stage) -> tuple[Exchange, ...]:
    return algo.opening() if stage == "opening" else algo.round()


def sent(exchange: int, direction: Direction, messages: Sequence[Message]) -> Traffic:
    whole, values = sum(map(bits, messages)), sum(map(value_bits, messages))
    return Traffic(exchange, direction, len(messages), whole, values)


def listen(
    exchange: Exchange, fleet: Fleet, server: Server, t: int, jobs: Sequence[Job]
) -> tuple[Server, Traffic, int]:
    """Do the jobs and use their replies: the server after, the uploads, the samples drawn."""
    done = fleet.work(jobs)
    replies = [Reply(job.client, d.n, t - job.t, d.up) for job, d in zip(jobs, done, strict=True)]
    refuse_non_finite(replies, t)
    server = exchange.up(server, replies)
    fleet.accept([job.client for job in jobs])
    number = jobs[0].exchange
    return server, sent(number, "up", [r.up for r in replies]), sum(d.drawn for d in done)


def play(
    algo: Algorithm, fleet: Fleet, server: Server, t: int, stage: Stage, clients: Sequence[int]
) -> Step:
    """All exchanges of a stage, one after the other, with the same clients."""
    traffic: list[Traffic] = []
    drawn = 0
    for number, exchange in enumerate(exchanges(algo, stage)):
        down = exchange.down(server)
        jobs = [Job(client, t, stage, number, down) for client in clients]
        server, up, samples = listen(exchange, fleet, server, t, jobs)
        traffic += [sent(number, "down", [down] * len(clients)), up]
        drawn += samples
    return Step(t, server, clients, tuple(traffic), drawn, staleness=(0,) * len(clients))
