"""Running one exchange: the server sends, a fleet works, the server aggregates, all is counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from tunefree.core import Algorithm, Exchange, Message, Reply, Server, Vec, about
from tunefree.fleet.job import Done, Fleet, Job, Stage, exchanges
from tunefree.schedule.evidence import noted
from tunefree.schedule.gauge import Gauge
from tunefree.wire.message import bits, fault, value_bits

Direction = Literal["down", "up"]
NO_REPLY = "its reply did not come"


class Release(Protocol):
    """All that a method's server gets to see of the replies of a private round: one in their place.

    It is used in every round, also in one without replies; `asked` are those it could be about.
    """

    def __call__(
        self,
        t: int,
        Up: type[Message],
        replies: Sequence[Reply],
        like: Vec,
        asked: Sequence[int] | None = None,
    ) -> Reply: ...


class Traffic(NamedTuple):
    """What one exchange sent in one direction; a refused upload is not counted."""

    exchange: int
    direction: Direction
    messages: int
    bits: int  # of all messages together
    value_bits: int  # as the papers count, without the positions of sparse values


class Absence(NamedTuple):
    """A client whose reply could not be used."""

    exchange: int
    client: int
    reason: str


class Step(NamedTuple):
    """The server after step t, and the cost of the step."""

    t: int
    server: Server
    clients: Sequence[int] = ()  # those whose replies were used; if none, the server is as before
    traffic: tuple[Traffic, ...] = ()
    samples: int = 0  # drawn by all clients
    virtual_seconds: float = 0.0  # since the start; 0 without delays
    staleness: tuple[int, ...] = ()  # of each client's reply: server steps since its download
    absent: tuple[Absence, ...] = ()
    in_flight: Mapping[int, Message] = {}  # downloads that clients still work on, by step


class Used(NamedTuple):
    """The result of the replies to one exchange."""

    server: Server
    replies: list[Reply]
    traffic: Traffic
    samples: int
    absent: tuple[Absence, ...]


def sent(
    exchange: int, direction: Direction, messages: Sequence[Message], done: Sequence[Done] = ()
) -> Traffic:
    """These messages, and what was sent beside those that were `done`."""
    more = sum(each.beside[0] for each in done)
    extra = sum(each.beside[1 if direction == "down" else 2] for each in done)
    whole, values = sum(map(bits, messages)) + extra, sum(map(value_bits, messages)) + extra
    return Traffic(exchange, direction, len(messages) + more, whole, values)


def answers(jobs: Sequence[Job], done: Sequence[Done]) -> list[tuple[Job, Done]]:
    """Every job with its reply (the first of duplicates), or with the reason why there is none."""
    came = {reply.key: reply for reply in reversed(done)}
    return [(job, came.get(job.key, Done(job.key, None, 0, 0, NO_REPLY))) for job in jobs]


def refusal(algo: Algorithm, exchange: Exchange, reply: Done, server: Server) -> str:
    """Why a reply cannot be used; empty if it can."""
    return reply.fault or fault(reply.up, exchange.Up, server.theta, about(algo).bounds)


def use(
    algo: Algorithm,
    exchange: Exchange,
    fleet: Fleet,
    gauge: Gauge,
    server: Server,
    t: int,
    jobs: Sequence[Job],
    done: Sequence[Done],
    release: Release | None = None,
) -> Used:
    """Use the valid replies to these jobs, each once, in the order of the jobs.

    If there is none, the server stays unchanged, unless there is a release.
    """
    used: list[tuple[Job, Done]] = []
    absent: list[Absence] = []
    wrong: list[tuple[Job, str]] = []  # uploads that came and cannot be used, and why
    for job, reply in answers(jobs, done):
        if reason := refusal(algo, exchange, reply, server):
            absent.append(Absence(job.exchange, job.client, reason))
            wrong += [] if reply.fault else [(job, reason)]
        else:
            used.append((job, reply))
    if release is None:
        why = gauge.judge(algo, used, wrong)
        absent = [each._replace(reason=why.pop(each.client, each.reason)) for each in absent]
        absent += [Absence(jobs[0].exchange, client, reason) for client, reason in why.items()]
        used = [(job, reply) for job, reply in used if job.client not in why]
        if gauge.judges:
            gauge.vectors = noted(gauge.vectors, algo, used)
    replies = [Reply(job.client, reply.n, t - job.t, reply.up) for job, reply in used]
    if release is not None:
        asked = [job.client for job in jobs]
        server = exchange.up(server, [release(t, exchange.Up, replies, server.theta, asked)])
    elif replies:
        server = exchange.up(server, replies)
    if replies:
        fleet.states.accept(used)
    traffic = sent(
        jobs[0].exchange if jobs else 0,
        "up",
        [reply.up for reply in replies],
        [each for _, each in used],
    )
    return Used(server, replies, traffic, sum(d.drawn for _, d in used), tuple(absent))


def run_stage(
    algo: Algorithm,
    fleet: Fleet,
    gauge: Gauge,
    server: Server,
    t: int,
    stage: Stage,
    clients: Sequence[int],
    joining: Sequence[Job] = (),
    release: Release | None = None,
) -> tuple[Step, list[tuple[Job, Done]]]:
    """Run all exchanges of a stage in order, with the clients that reply.

    If no client remains, the step is given up and the server stays unchanged, unless there is a
    release. Clients that are
    joining run their opening beside the first exchange; their replies are returned with the step.
    """
    before = server
    traffic: list[Traffic] = []
    absent: list[Absence] = []
    joined: list[tuple[Job, Done]] = []
    samples = 0
    for number, exchange in enumerate(exchanges(algo, stage, t)):
        down = exchange.down(server)
        jobs = [Job(client, t, stage, number, down) for client in clients]
        done = fleet.work([*jobs, *joining])
        joined, joining = joined + answers(joining, done), ()
        used = use(algo, exchange, fleet, gauge, server, t, jobs, done, release)
        traffic += [sent(number, "down", [down] * len(jobs), done), used.traffic]
        absent += used.absent
        samples += used.samples
        clients = [reply.client for reply in used.replies]
        server = used.server
        if not clients and release is None:
            server = before
            break
    staleness = (0,) * len(clients)
    step = Step(t, server, clients, tuple(traffic), samples, 0.0, staleness, tuple(absent))
    return step, joined
