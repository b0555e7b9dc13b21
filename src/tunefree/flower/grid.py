"""A fleet whose clients are Flower nodes: sends jobs, and collects replies as they arrive."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple, NoReturn, cast

from flwr.app import Message, MessageType

from tunefree.core import OpeningDown, Vec
from tunefree.errors import FleetError, WireError
from tunefree.fleet.job import Done, Job, exchanges
from tunefree.flower.envelope import MOST, Answer, Envelope, data_in, key_text, pack, unpack
from tunefree.flower.ledger import Ledger
from tunefree.flower.membership import Members
from tunefree.flower.nodes import last_line
from tunefree.flower.pace import Pace
from tunefree.flower.transport import Transport
from tunefree.settings import Deployment
from tunefree.wire import decode, encode

DEADLINES = 3  # how many to wait for, if there are too few replies for a step after one
PATIENCE = 1.5  # times what a client took last time
NOT_THERE = "it is not connected"
LEFT = "it disconnected during its job"
LATE = "it is still working on an earlier job"
LOST = "it has lost its state"


class Sent(NamedTuple):
    """A job in flight: its node, that node's session, and when it was sent."""

    job: Job
    node: int
    session: str | None
    when: float


class GridFleet:
    """Jobs in flight, by the message that carries them.

    A job whose deadline has passed is void, but its client is still working on it: for two more
    deadlines it gets no other job until it answers, so that void jobs do not pile up. The time it
    then took extends its next deadline, to at most three times the usual one.
    """

    def __init__(
        self,
        transport: Transport,
        run: str,
        theta0: Vec,
        ledger: Ledger,
        members: Members,
        deployment: Deployment,
    ) -> None:
        self._transport, self._run, self._theta0 = transport, run, theta0
        self.states, self._members = ledger, members
        self._deadline, self._at_least = deployment.deadline, deployment.at_least
        self._in_flight: dict[str, Sent] = {}
        self._void: dict[str, Sent] = {}  # overdue, and not answered yet
        self._took: dict[int, float] = {}  # seconds of the last job, by client
        self.by_client: dict[int, Mapping[str, float]] = {}  # the last scores on its own samples

    @property
    def late(self) -> dict[int, float]:
        """Clients that are still working on an overdue job, and since when."""
        return self._members.late

    @property
    def in_flight(self) -> list[Job]:
        return [sent.job for sent in self._in_flight.values()]

    def work(self, jobs: Sequence[Job]) -> list[Done]:
        """Send all jobs and wait for all replies; after the deadline, until there are enough."""
        counted = {job.key for job in jobs if job.stage == "round" or job.t < 0}
        least = min(self._at_least, len(counted))
        done, pace = self.send(jobs), Pace(longest=1.0)
        while self._in_flight:
            come = [reply for _, reply in self.fetch()]
            done += come
            enough = usable(done, counted) >= least
            done += [reply for _, reply in self.overdue(enough)]
            if come:
                pace.news()
            elif self._in_flight:
                time.sleep(pace.pause())
        if 0 < usable(done, counted) < least:
            self.give_up(jobs[0].t, [reply for reply in done if reply.key in counted])
        return done

    def give_up(self, t: int, done: Sequence[Done]) -> NoReturn:
        """Stop the run: there are fewer replies than a step needs."""
        reasons = "; ".join(f"client {d.key[0]}: {d.fault}" for d in done if d.fault)
        raise FleetError(
            f"{sum(not d.fault for d in done)} usable replies came at t = {t}, fewer than at_least "
            f"= {self._at_least} ({reasons}); start the run again, and it resumes after its last "
            "step"
        )

    def send(self, jobs: Sequence[Job]) -> list[Done]:
        """Send the jobs; returns a fault for each that could not be sent."""
        nodes, ledger, late = self._members.nodes.connected(), self.states, self._members.late
        there = [job for job in jobs if job.client in nodes and job.client not in late]
        messages = []
        for job in there:
            ack = None if job.stage == "opening" else ledger.ack(job.client)
            N = max(ledger.N, job.client + 1)
            words = (self._run, job.client, N, job.stage, job.t, job.exchange, key_text(ack))
            content = pack(Envelope(*words, self._members.mean_steps), encode(job.down))
            ttl = self._deadline * DEADLINES
            messages.append(Message(content, nodes[job.client], MessageType.TRAIN, ttl=ttl))
        sessions, now = self._transport.nodes(), time.monotonic()
        numbers = self._transport.send(messages)
        new = {
            n: Sent(job, nodes[job.client], sessions.get(nodes[job.client]), now)
            for n, job in zip(numbers, there, strict=True)
            if n is not None
        }
        self._in_flight |= new
        sent = {each.job.key for each in new.values()}
        return [
            Done(job.key, None, 0, 0, LATE if job.client in late else NOT_THERE)
            for job in jobs
            if job.key not in sent
        ]

    def fetch(self) -> list[tuple[Job, Done]]:
        """The jobs whose replies have arrived; they are no longer in flight."""
        come, now = [], time.monotonic()
        for message in self._transport.pull([*self._in_flight, *self._void]):
            number = message.metadata.reply_to_message_id
            if (sent := self._void.pop(number, None)) is not None:
                self._members.late.pop(sent.job.client, None)
            elif (sent := self._in_flight.pop(number, None)) is not None:
                come.append((sent.job, self._read(message, sent.job)))
            if sent is not None and not message.has_error():
                self._took[sent.job.client] = now - sent.when
        return come

    def overdue(self, enough: bool = True) -> list[tuple[Job, Done]]:
        """The jobs past their deadline or with a disconnected node; they are no longer in flight.

        While there are not enough replies, all deadlines are longer.
        """
        now, nodes, done = time.monotonic(), self._transport.nodes(), []
        for number, sent in list(self._in_flight.items()):
            job, waited = sent.job, now - sent.when
            if nodes.get(sent.node) != sent.session:
                why = LEFT
            elif waited > (self._allowed(job.client) if enough else DEADLINES * self._deadline):
                why = f"its reply did not arrive within {waited:.3g} s"
                self._void[number] = sent
                self._members.late[job.client] = sent.when
            else:
                continue
            del self._in_flight[number]
            done.append((job, Done(job.key, None, 0, 0, why)))
        for number, sent in list(self._void.items()):
            if nodes.get(sent.node) != sent.session or now - sent.when > DEADLINES * self._deadline:
                del self._void[number]
                self._members.late.pop(sent.job.client, None)
        return done

    def _allowed(self, client: int) -> float:
        """Seconds that this client has for its reply."""
        usual = PATIENCE * self._took.get(client, 0.0)
        return min(max(self._deadline, usual), DEADLINES * self._deadline)

    def _read(self, message: Message, job: Job) -> Done:
        sender = f"client {job.client}"
        if message.has_error():
            return Done(job.key, None, 0, 0, f"its work failed: {last_line(message.error.reason)}")
        try:
            answer: Answer = unpack(message.content, Answer, sender)
            if answer[:4] != (self._run, job.client, job.t, job.exchange):
                raise WireError(f"{sender} answered another job")
            if answer.lost:
                self._members.state_lost(job.client)
                return Done(job.key, None, 0, 0, LOST)
            if not (1 <= answer.n < MOST and 0 <= answer.drawn < 2**62):
                raise WireError(
                    f"{sender} reports that it has {answer.n} samples and drew {answer.drawn}"
                )
            Up = exchanges(self._members.algo, job.stage, job.t)[job.exchange].Up
            data = data_in(message.content, sender)
            up: Any = decode(data, Up, like=self._theta0, client=job.client)
        except WireError as error:
            return Done(job.key, None, 0, 0, str(error))
        return Done(job.key, up, answer.n, answer.drawn)

    def scores(self, theta: Vec) -> dict[str, float]:
        """Loss and accuracy on clients' own samples: the mean over clients, the worst, the best."""
        content = pack(None, encode(OpeningDown(theta)))
        nodes = self._members.nodes.connected()
        asked = {c: node for c, node in nodes.items() if c not in self._members.late}
        messages = [Message(content, node, MessageType.EVALUATE) for node in asked.values()]
        sessions = self._transport.nodes()
        numbers = zip(self._transport.send(messages), asked, strict=True)
        waiting = {number: client for number, client in numbers if number is not None}
        found: dict[int, Mapping[str, float]] = {}
        end, pace = time.monotonic() + self._deadline, Pace(longest=1.0)
        while waiting and time.monotonic() < end:
            for reply in self._transport.pull(list(waiting)):
                client = waiting.pop(reply.metadata.reply_to_message_id)
                if not reply.has_error() and "scores" in reply.content:
                    found[client] = dict(cast("Any", reply.content["scores"]))
            there = self._transport.nodes()
            waiting = {
                n: c for n, c in waiting.items() if there.get(asked[c]) == sessions.get(asked[c])
            }
            if waiting:
                time.sleep(pace.pause())
        self.by_client = found
        return spread(found)

    def close(self) -> None:
        """Nothing to stop: the connection is Flower's."""


def usable(done: Iterable[Done], counted: set[Any]) -> int:
    return sum(1 for reply in done if not reply.fault and reply.key in counted)


def spread(found: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    """The mean, worst and best of the clients' scores; the worst loss is the highest."""
    scores = {}
    for name, worst, best in (("loss", max, min), ("accuracy", min, max)):
        values = [f[name] for f in found.values() if math.isfinite(f.get(name, math.nan))]
        if values:
            scores[f"train_{name}"] = fmean(values)
            scores[f"train_{name}_worst"] = worst(values)
            scores[f"train_{name}_best"] = best(values)
    return scores
