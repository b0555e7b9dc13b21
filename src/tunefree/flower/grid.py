"""A fleet whose clients are Flower nodes: jobs pushed to Flower's Grid, replies pulled from it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NoReturn, cast

from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from tunefree.config import Deployment
from tunefree.core import OpeningDown, Vec
from tunefree.errors import FleetError, WireError
from tunefree.fleet.job import Done, Job, exchanges
from tunefree.flower.envelope import MOST, Answer, Envelope, data_in, key_text, pack, unpack
from tunefree.flower.ledger import Ledger
from tunefree.flower.membership import Members
from tunefree.flower.nodes import PAUSE, last_line, pull
from tunefree.wire import decode, encode

DEADLINES = 3  # so many are waited for, where after one there are too few replies for a step
NOT_THERE = "it is not connected"
LOST = "it has lost its memory"


class GridFleet:
    """Jobs that are out, by the message that carries them."""

    def __init__(
        self,
        grid: Grid,
        run: str,
        theta0: Vec,
        ledger: Ledger,
        members: Members,
        deployment: Deployment,
    ) -> None:
        self._grid, self._run, self._theta0 = grid, run, theta0
        self.states, self._members = ledger, members
        self._deadline, self._at_least = deployment.deadline, deployment.at_least
        self._out: dict[str, tuple[Job, float]] = {}  # and when it went out

    @property
    def out(self) -> list[Job]:
        return [job for job, _ in self._out.values()]

    def work(self, jobs: Sequence[Job]) -> list[Done]:
        """Send all and wait for all, but after the deadline only until enough have come."""
        counted = {job.key for job in jobs if job.stage == "round" or job.t < 0}
        least = min(self._at_least, len(counted))
        done = self.send(jobs)
        while self._out:
            done += [reply for _, reply in self.fetch()]
            enough = usable(done, counted) >= least
            done += [reply for _, reply in self.overdue(1 if enough else DEADLINES)]
            if self._out:
                time.sleep(PAUSE)
        if 0 < usable(done, counted) < least:
            self.give_up(jobs[0].t, [reply for reply in done if reply.key in counted])
        return done

    def give_up(self, t: int, done: Sequence[Done]) -> NoReturn:
        """Fewer replies than a step needs."""
        reasons = "; ".join(f"client {d.key[0]}: {d.fault}" for d in done if d.fault)
        raise FleetError(
            f"{sum(not d.fault for d in done)} usable replies came at t = {t}, fewer than at-least "
            f"= {self._at_least} ({reasons}); the run can be started again and goes on from its "
            "last step"
        )

    def send(self, jobs: Sequence[Job]) -> list[Done]:
        """Push the jobs; what is known at once of those that could not go out."""
        nodes, ledger = self._members.nodes.connected(), self.states
        there = [job for job in jobs if job.client in nodes]
        messages = []
        for job in there:
            ack = None if job.stage == "opening" else ledger.ack(job.client)
            N = max(ledger.N, job.client + 1)
            words = (self._run, job.client, N, job.stage, job.t, job.exchange, key_text(ack))
            content = pack(Envelope(*words, self._members.mean_steps), encode(job.down))
            ttl = self._deadline * DEADLINES
            messages.append(Message(content, nodes[job.client], MessageType.TRAIN, ttl=ttl))
        numbers = list(self._grid.push_messages(messages)) if messages else []
        now = time.monotonic()
        new = {n: (job, now) for n, job in zip(numbers, there, strict=True) if n is not None}
        self._out |= new
        sent = {job.key for job, _ in new.values()}
        return [Done(job.key, None, 0, 0, NOT_THERE) for job in jobs if job.key not in sent]

    def fetch(self) -> list[tuple[Job, Done]]:
        """The jobs whose replies have come; they are no longer out."""
        come = []
        for message in pull(self._grid, list(self._out)):
            job, _ = self._out.pop(message.metadata.reply_to_message_id)
            come.append((job, self._read(message, job)))
        return come

    def overdue(self, deadlines: int = 1) -> list[tuple[Job, Done]]:
        """The jobs whose time is up; they are no longer out."""
        since = time.monotonic() - deadlines * self._deadline
        late = [number for number, (_, sent) in self._out.items() if sent < since]
        why = f"its reply did not come within {self._deadline:g} s"
        jobs = [self._out.pop(number)[0] for number in late]
        return [(job, Done(job.key, None, 0, 0, why)) for job in jobs]

    def _read(self, message: Message, job: Job) -> Done:
        sender = f"client {job.client}"
        if message.has_error():
            return Done(job.key, None, 0, 0, f"its work failed: {last_line(message.error.reason)}")
        try:
            answer: Answer = unpack(message.content, Answer, sender)
            if answer[:4] != (self._run, job.client, job.t, job.exchange):
                raise WireError(f"{sender} answered another job")
            if answer.lost:
                self._members.forgot(job.client)
                return Done(job.key, None, 0, 0, LOST)
            if not (1 <= answer.n < MOST and 0 <= answer.drawn < 2**62):
                raise WireError(f"{sender} says it holds {answer.n} samples, drew {answer.drawn}")
            Up = exchanges(self._members.algo, job.stage, job.t)[job.exchange].Up
            data = data_in(message.content, sender)
            up: Any = decode(data, Up, like=self._theta0, client=job.client)
        except WireError as error:
            return Done(job.key, None, 0, 0, str(error))
        return Done(job.key, up, answer.n, answer.drawn)

    def scores(self, theta: Vec) -> dict[str, float]:
        """The mean over clients of the loss (and accuracy) on their own samples."""
        content = pack(None, encode(OpeningDown(theta)))
        nodes = self._members.nodes.connected().values()
        messages = [Message(content, node, MessageType.EVALUATE) for node in nodes]
        waiting = [n for n in self._grid.push_messages(messages) if n is not None]
        found: list[Mapping[str, float]] = []
        end = time.monotonic() + self._deadline
        while waiting and time.monotonic() < end:
            for reply in pull(self._grid, waiting):
                waiting.remove(reply.metadata.reply_to_message_id)
                if not reply.has_error() and "scores" in reply.content:
                    found.append(cast("Any", reply.content["scores"]))
            time.sleep(PAUSE)
        values = {
            name: [f[name] for f in found if math.isfinite(f.get(name, math.nan))]
            for name in ("loss", "accuracy")
        }
        return {f"train_{name}": fmean(each) for name, each in values.items() if each}

    def close(self) -> None:
        """Nothing to end: the Grid is Flower's."""


def usable(done: Iterable[Done], counted: set[Any]) -> int:
    return sum(1 for reply in done if not reply.fault and reply.key in counted)
