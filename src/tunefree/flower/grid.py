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
from tunefree.flower.nodes import Nodes, last_line
from tunefree.flower.pace import Pace
from tunefree.flower.transport import Sent, Transport
from tunefree.settings import Deployment
from tunefree.wire import decode, encode

DEADLINES = 3  # how many to wait for, if there are too few replies for a step after one
PATIENCE = 1.5  # times what a client took last time
NOT_THERE = "it is not connected"
LEFT = "it disconnected during its job"
LATE = "it is still working on an earlier job"
LOST = "it has lost its state"


class Flying(NamedTuple):
    """A job that was sent; an overdue one is void, but its client is still working on it."""

    job: Job
    sent: Sent
    overdue: bool = False


class GridFleet:
    """Jobs in flight, by the message that carries them.

    A client with an overdue job gets no other for two more deadlines or until it answers, so that
    void jobs do not pile up. The time it then took extends its next deadline, to at most three
    times the usual one.
    """

    def __init__(
        self,
        transport: Transport,
        nodes: Nodes,
        ledger: Ledger,
        theta0: Vec,
        run: str,
        deployment: Deployment,
        by_epochs: bool,
    ) -> None:
        """`by_epochs`: local work is given in epochs, so that clients must be sent K."""
        self.nodes, self.states = nodes, ledger
        self._transport, self._theta0, self._run, self._by_epochs = (
            transport,
            theta0,
            run,
            by_epochs,
        )
        self._deadline, self._at_least = deployment.deadline, deployment.at_least
        self._flying: dict[str, Flying] = {}
        self._took: dict[int, float] = {}  # seconds of the last job, by client
        self.by_client: dict[int, Mapping[str, float]] = {}  # the last scores on its own samples

    @property
    def late(self) -> dict[int, float]:
        """Clients that are still working on an overdue job, and since when."""
        flying = list(self._flying.values())  # another thread may read this
        return {each.job.client: each.sent.when for each in flying if each.overdue}

    @property
    def in_flight(self) -> list[Job]:
        return [each.job for each in self._flying.values() if not each.overdue]

    def work(self, jobs: Sequence[Job]) -> list[Done]:
        """Send all jobs and wait for all replies; after the deadline, until there are enough."""
        counted = {job.key for job in jobs if job.stage == "round" or job.t < 0}
        least = min(self._at_least, len(counted))
        done, pace = self.send(jobs), Pace(longest=1.0)
        while self.in_flight:
            come = [reply for _, reply in self.fetch()]
            done += come
            done += [reply for _, reply in self.overdue(enough=usable(done, counted) >= least)]
            if come or self.in_flight:
                pace.rest(come)
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
        nodes, late = self.nodes.connected(), self.late
        there = [job for job in jobs if job.client in nodes and job.client not in late]
        ttl = self._deadline * DEADLINES
        messages = [
            Message(self._packed(job), nodes[job.client], MessageType.TRAIN, ttl=ttl)
            for job in there
        ]
        new = [
            Flying(job, sent)
            for job, sent in zip(there, self._transport.send(messages), strict=True)
            if sent
        ]
        self._flying |= {each.sent.number: each for each in new}
        gone = {job.key for job in jobs} - {each.job.key for each in new}
        return [
            failed(job, LATE if job.client in late else NOT_THERE)
            for job in jobs
            if job.key in gone
        ]

    def _packed(self, job: Job) -> Any:
        """A job as a message; N counts a client that is about to join."""
        ledger = self.states
        ack = None if job.stage == "opening" else ledger.ack(job.client)
        envelope = Envelope(
            run=self._run,
            client=job.client,
            N=max(ledger.N, job.client + 1),
            stage=job.stage,
            t=job.t,
            exchange=job.exchange,
            ack=key_text(ack),
            K=ledger.algo.sys.K if self._by_epochs else 0,
        )
        return pack(envelope, encode(job.down))

    def fetch(self) -> list[tuple[Job, Done]]:
        """The jobs whose replies have arrived; they are no longer in flight."""
        come, now = [], time.monotonic()
        for message in self._transport.pull(self._flying):
            each = self._flying.pop(message.metadata.reply_to_message_id, None)
            if each is None:
                continue
            if not message.has_error():
                self._took[each.job.client] = now - each.sent.when
            if not each.overdue:
                come.append((each.job, self._read(message, each.job)))
        return come

    def overdue(self, enough: bool = True) -> list[tuple[Job, Done]]:
        """The jobs past their deadline or with a disconnected node; they are no longer in flight.

        While there are not enough replies, all deadlines are longer.
        """
        now, longest, done = time.monotonic(), DEADLINES * self._deadline, []
        for number, (job, sent, overdue) in list(self._flying.items()):
            waited, why = now - sent.when, LEFT
            left = self._transport.gone(sent)
            if not left:
                if waited <= (self._allowed(job.client) if enough else longest):
                    continue
                why = f"its reply did not arrive within {waited:.3g} s"
            if left or waited > longest:
                del self._flying[number]
            else:
                self._flying[number] = Flying(job, sent, overdue=True)
            if not overdue:
                done.append((job, failed(job, why)))
        return done

    def _allowed(self, client: int) -> float:
        """Seconds that this client has for its reply."""
        usual = PATIENCE * self._took.get(client, 0.0)
        return min(max(self._deadline, usual), DEADLINES * self._deadline)

    def _read(self, message: Message, job: Job) -> Done:
        sender = f"client {job.client}"
        if message.has_error():
            return failed(job, f"its work failed: {last_line(message.error.reason)}")
        try:
            answer: Answer = unpack(message.content, Answer, sender)
            if answer[:4] != (self._run, job.client, job.t, job.exchange):
                raise WireError(f"{sender} answered another job")
            if answer.lost:
                self.states.lost.add(job.client)
                return failed(job, LOST)
            if not (1 <= answer.n < MOST and 0 <= answer.drawn < 2**62):
                raise WireError(
                    f"{sender} reports that it has {answer.n} samples and drew {answer.drawn}"
                )
            Up = exchanges(self.states.algo, job.stage, job.t)[job.exchange].Up
            data = data_in(message.content, sender)
            up: Any = decode(data, Up, like=self._theta0, client=job.client)
        except WireError as error:
            return failed(job, str(error))
        return Done(job.key, up, answer.n, answer.drawn)

    def scores(self, theta: Vec) -> dict[str, float]:
        """Loss and accuracy on clients' own samples: the mean over clients, the worst, the best."""
        content = pack(None, encode(OpeningDown(theta)))
        late = self.late
        asked = {c: node for c, node in self.nodes.connected().items() if c not in late}
        messages = [Message(content, node, MessageType.EVALUATE) for node in asked.values()]
        sent = zip(asked, self._transport.send(messages), strict=True)
        waiting = {each.number: (client, each) for client, each in sent if each}
        found: dict[int, Mapping[str, float]] = {}
        end, pace = time.monotonic() + self._deadline, Pace(longest=1.0)
        while waiting and time.monotonic() < end:
            come = self._transport.pull(waiting)
            for reply in come:
                client, _ = waiting.pop(reply.metadata.reply_to_message_id)
                if not reply.has_error() and "scores" in reply.content:
                    found[client] = dict(cast("Any", reply.content["scores"]))
            waiting = {n: each for n, each in waiting.items() if not self._transport.gone(each[1])}
            if waiting:
                pace.rest(come)
        self.by_client = found
        return spread(found)

    def close(self) -> None:
        """Nothing to stop: the connection is Flower's."""


def failed(job: Job, why: str) -> Done:
    return Done(job.key, None, 0, 0, why)


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
