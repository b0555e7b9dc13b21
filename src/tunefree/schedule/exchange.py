"""One exchange played: the server speaks, a fleet works, the server listens, all is counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args, get_type_hints

from tunefree.core import Algorithm, Exchange, Message, Reply, Server
from tunefree.fleet.job import Done, Fleet, Job, Stage, exchanges
from tunefree.wire.message import bits, fault, value_bits

Direction = Literal["down", "up"]


class Traffic(NamedTuple):
    """What one exchange sent in one direction; a refused upload is not counted."""

    exchange: int
    direction: Direction
    messages: int
    bits: int  # of all messages together
    value_bits: int  # the same as the papers count, without the positions of sparse values


class Absence(NamedTuple):
    """A client whose reply could not be used."""

    exchange: int
    client: int
    reason: str


class Step(NamedTuple):
    """The server after step t, and what the step took."""

    t: int
    server: Server
    clients: Sequence[int]  # those whose replies were used; if none, the server is as before
    traffic: tuple[Traffic, ...]
    drawn: int  # samples drawn by all clients
    time: float = 0.0  # virtual seconds since the start; 0 where nobody has a delay
    staleness: tuple[int, ...] = ()  # of each client's reply: server steps since its download
    absent: tuple[Absence, ...] = ()
    held: Mapping[int, Message] = {}  # downloads that clients still work on, by step


class Heard(NamedTuple):
    """What came of listening to the clients of one exchange."""

    server: Server
    replies: list[Reply]
    traffic: Traffic
    drawn: int
    absent: tuple[Absence, ...]


def sent(exchange: int, direction: Direction, messages: Sequence[Message]) -> Traffic:
    whole, values = sum(map(bits, messages)), sum(map(value_bits, messages))
    return Traffic(exchange, direction, len(messages), whole, values)


def listen(
    algo: Algorithm, exchange: Exchange, fleet: Fleet, server: Server, t: int, jobs: Sequence[Job]
) -> Heard:
    """Have the jobs done and use what came of them."""
    return hear(algo, exchange, fleet, server, t, jobs, fleet.work(jobs))


def hear(
    algo: Algorithm,
    exchange: Exchange,
    fleet: Fleet,
    server: Server,
    t: int,
    jobs: Sequence[Job],
    done: Sequence[Done],
) -> Heard:
    """Use the replies to these jobs that can be used, each once, in the order of the jobs.

    If there is none, the server stays as it was.
    """
    came = {reply.key: reply for reply in reversed(done)}  # of two to the same job, the first
    kinds = uploads(exchange.work)
    bounds = getattr(getattr(algo, "about", None), "bounds", {})
    used: list[tuple[Job, Done]] = []
    absent: list[Absence] = []
    for job in jobs:
        reply = came.get(job.key)
        reason = "its reply did not come"
        if reply is not None:
            reason = reply.fault or fault(reply.up, kinds, server.theta, bounds)
        if reply is None or reason:
            absent.append(Absence(job.exchange, job.client, reason))
        else:
            used.append((job, reply))
    replies = [Reply(job.client, reply.n, t - job.t, reply.up) for job, reply in used]
    if replies:
        server = exchange.up(server, replies)
        fleet.accept([job.key for job, _ in used])
    traffic = sent(jobs[0].exchange, "up", [reply.up for reply in replies])
    return Heard(server, replies, traffic, sum(d.drawn for _, d in used), tuple(absent))


def uploads(work: Callable[..., Any]) -> tuple[type, ...]:
    """The kinds of message that an exchange's work says it uploads; none if it does not say."""
    try:
        given = get_type_hints(work).get("return")
    except (TypeError, NameError):
        return ()
    _, up = get_args(given) or (None, Any)
    return tuple(kind for kind in get_args(up) or (up,) if hasattr(kind, "_fields"))


def play(
    algo: Algorithm, fleet: Fleet, server: Server, t: int, stage: Stage, clients: Sequence[int]
) -> Step:
    """All exchanges of a stage, one after the other, with the clients that answer.

    When nobody is left, the step is given up and the server stays as it was before.
    """
    before = server
    traffic: list[Traffic] = []
    absent: list[Absence] = []
    drawn = 0
    for number, exchange in enumerate(exchanges(algo, stage)):
        down = exchange.down(server)
        jobs = [Job(client, t, stage, number, down) for client in clients]
        heard = listen(algo, exchange, fleet, server, t, jobs)
        traffic += [sent(number, "down", [down] * len(jobs)), heard.traffic]
        absent += heard.absent
        drawn += heard.drawn
        clients = [reply.client for reply in heard.replies]
        server = heard.server
        if not clients:
            server = before
            break
    staleness = (0,) * len(clients)
    return Step(t, server, clients, tuple(traffic), drawn, 0.0, staleness, tuple(absent))
