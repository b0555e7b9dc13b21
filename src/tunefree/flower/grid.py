"""A fleet whose clients are Flower nodes: sends jobs, and collects replies as they arrive."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from flwr.app import Message, MessageType, RecordDict

from tunefree.core import OpeningDown, Vec
from tunefree.errors import FleetError, WireError
from tunefree.fleet.job import Done, Job, exchanges
from tunefree.flower.envelope import MOST, Answer, Envelope, data_in, key_text, pack, unpack
from tunefree.flower.ledger import Ledger
from tunefree.flower.log import cleaned
from tunefree.flower.nodes import Nodes, last_line
from tunefree.flower.pace import Pace
from tunefree.flower.private import Private
from tunefree.flower.transport import Sent, Transport
from tunefree.settings import Deployment
from tunefree.wire import decode, encode
from tunefree.wire.codec import most_bytes

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
        private: Private | None = None,
    ) -> None:
        """`by_epochs`: local work is given in epochs, so that clients must be sent K."""
        self.nodes, self.states, self.private = nodes, ledger, private
        self._transport, self._theta0, self._run = transport, theta0, run
        self._deadline, self._at_least = deployment.deadline, deployment.at_least
        self._by_epochs = by_epochs
        self.own = False  # whether clients have parts of the model for themselves
        self._flying: dict[str, Flying] = {}
        self._took: dict[int, float] = {}  # seconds of the last job, by client
        self.begun: tuple[int, Sequence[int]] | None = None  # a secure sum: step, partition-ids
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
        if jobs:
            self.require(len(counted), [each for each in done if each.key in counted], jobs[0].t)
        return done

    def require(self, most: int, done: Sequence[Done], t: int) -> None:
        """Stop the run if usable replies came, but fewer than a step of at most so many needs."""
        good = sum(not reply.fault for reply in done)
        if 0 < good < min(self._at_least, most):
            reasons = "; ".join(f"client {d.key[0]}: {d.fault}" for d in done if d.fault)
            raise FleetError(
                f"{good} usable replies came at t = {t}, fewer than at_least = {self._at_least} "
                f"({reasons}); start the run again, and it resumes after its last step"
            )

    def send(self, jobs: Sequence[Job]) -> list[Done]:
        """Send the jobs; returns a fault for each that could not be sent."""
        nodes, late = self.nodes.connected(), self.late
        there = {nodes[job.client]: job for job in jobs if job.client in nodes.keys() - late.keys()}
        downs = {id(job.down): job.down for job in there.values()}  # mostly one for all
        encoded = {each: encode(down) for each, down in downs.items()}
        contents = {n: pack(self.envelope(job), encoded[id(job.down)]) for n, job in there.items()}
        for job in jobs:
            Up = exchanges(self.states.algo, job.stage, job.t)[job.exchange].Up
            self._transport.most = max(self._transport.most, most_bytes(Up, self._theta0))
        sent = self._transport.send(contents, MessageType.TRAIN, ttl=self._deadline * DEADLINES)
        new = {number: Flying(there[each.node], each) for number, each in sent.items()}
        self._flying |= new
        went = {each.job.key for each in new.values()}
        return [
            failed(job, LATE if job.client in late else NOT_THERE)
            for job in jobs
            if job.key not in went
        ]

    def envelope(self, job: Job) -> Envelope:
        """The words beside a job's download; N counts a client that is about to join."""
        ledger = self.states
        return Envelope(
            run=self._run,
            client=job.client,
            N=max(ledger.N, job.client + 1),
            stage=job.stage,
            t=job.t,
            exchange=job.exchange,
            ack=key_text(None if job.stage == "opening" else ledger.ack(job.client)),
            K=ledger.algo.sys.K if self._by_epochs else 0,
            clip=self.private.threshold if self.private else 0.0,
        )

    def fetch(self) -> list[tuple[Job, Done]]:
        """The jobs whose replies have arrived; they are no longer in flight."""
        come, now = [], time.monotonic()
        for (job, sent, overdue), message in self._transport.take(self._flying):
            if not message.has_error():
                self._took[job.client] = now - sent.when
            if not overdue:
                come.append((job, self._read(message, job)))
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
        n, drawn = (1, 0) if self.private else (answer.n, answer.drawn)
        return Done(job.key, up, self.nodes.trusted(job.client, n), drawn)

    def ask(
        self,
        contents: Mapping[int, RecordDict],
        kind: str,
        most: int = 0,
        jobs: Mapping[int, Job] = {},
    ) -> tuple[dict[int, RecordDict], dict[int, str]]:
        """Send these clients a message each; returns the answers that come before the deadline,
        of at most so many bytes, and why there is none; its client is then late with its job.
        """
        nodes, late = self.nodes.connected(), self.late
        self._transport.most = max(self._transport.most, most)
        asked = {nodes[client]: client for client in contents if client in nodes.keys() - late}
        those = {n: contents[c] for n, c in asked.items()}
        waiting = self._transport.send(those, kind, ttl=self._deadline * DEADLINES)
        answers: dict[int, RecordDict] = {}
        why = {client: LATE if client in late else NOT_THERE for client in contents}
        why |= {asked[sent.node]: "it did not answer in time" for sent in waiting.values()}
        end, pace = time.monotonic() + self._deadline, Pace(longest=1.0)
        while waiting and time.monotonic() < end:
            come = self._transport.take(waiting)
            for to, reply in come:
                if reply.has_error():
                    why[asked[to.node]] = f"its work failed: {last_line(reply.error.reason)}"
                else:
                    answers[asked[to.node]] = reply.content
                    del why[asked[to.node]]
            for number, sent in list(waiting.items()):
                if self._transport.gone(sent):
                    why[asked[sent.node]] = LEFT
                    del waiting[number]
            if waiting:
                pace.rest(come)
        for number, sent in waiting.items():
            if job := jobs.get(asked[sent.node]):
                self._flying[number] = Flying(job, sent, overdue=True)
        return answers, why

    def scores(self, theta: Vec) -> dict[str, float]:
        """Loss and accuracy on clients' own samples: the mean over clients, the worst, the best."""
        data, clients = encode(OpeningDown(theta)), self.nodes.connected()
        if self.own:  # the envelope says which of its states counts
            jobs = (Job(client, 0, "round", 0, None) for client in clients)
            question = {job.client: pack(self.envelope(job), data) for job in jobs}
        else:
            question = dict.fromkeys(clients, pack(None, data))
        answers = self.ask(question, MessageType.EVALUATE)[0].items()
        self.by_client = {c: told(a["scores"]) for c, a in answers if "scores" in a}
        return spread(self.by_client)

    def close(self) -> None:
        """Nothing to stop: the connection is Flower's."""


def told(scores: Any) -> dict[str, float]:
    """The scores that a client may report; it could add anything."""
    found = {name: scores.get(name) for name in ("accuracy", "loss")}
    return {name: value for name, value in found.items() if isinstance(value, float)}


def failed(job: Job, why: str) -> Done:
    return Done(job.key, None, 0, 0, cleaned(why))


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
