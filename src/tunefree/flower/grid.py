"""Jobs sent and replies fetched over Flower's Grid, and who is there to be sent one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, cast

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from tunefree.conformance.cost import Probe
from tunefree.core import Algorithm, OpeningDown, Vec
from tunefree.errors import FleetError, WireError
from tunefree.fleet.job import Done, Job, Key, exchanges
from tunefree.flower.envelope import MOST, Answer, data_in, envelope, packed, unpacked
from tunefree.flower.ledger import Books
from tunefree.schedule.exchange import uploads
from tunefree.wire import decode, encode

PAUSE = 0.2  # seconds between two looks at the post
AGAIN = 60.0  # seconds until a node that has not said who it is gets asked again
PATIENCE = 3  # deadlines after which too few replies end the run
NOT_THERE = "it is not connected"
LOST = "it has lost its memory"


class Members:
    """Which clients are there, by number; each is asked once who it is.

    A client is known by the partition-id of its node's config, or else by its node. Numbers are
    given in the order of partition-ids at the start, and in the order of arrival later.
    """

    def __init__(self, grid: Grid, names: Sequence[str]) -> None:
        self._grid = grid
        self.names = list(names)
        self._asked: dict[str, tuple[int, float]] = {}  # message -> node, and when to ask again
        self._said: dict[int, str] = {}  # node -> name
        self.refused: dict[int, str] = {}  # node -> why

    def look(self) -> dict[str, int]:
        """The node of every client that is there and has said who it is."""
        nodes = set(self._grid.get_node_ids())
        for reply in fetched(self._grid, list(self._asked)):
            node, _ = self._asked.pop(reply.metadata.reply_to_message_id)
            if not reply.has_error():
                self._said[node] = name_of(reply.content, node)
        now = time.monotonic()
        self._asked = {n: asked for n, asked in self._asked.items() if asked[1] > now}
        for node in nodes - set(self._said) - {node for node, _ in self._asked.values()}:
            record = RecordDict({"tunefree": ConfigRecord({"who": "are you"})})
            message = Message(record, node, MessageType.QUERY)
            for number in self._grid.push_messages([message]):
                if number is not None:
                    self._asked[number] = (node, now + AGAIN)
        there: dict[str, int] = {}
        for node in sorted(nodes & set(self._said)):
            name = self._said[node]
            if name in there:
                self.refused[node] = f"{name} is connected already, as node {there[name]}"
            else:
                there[name] = node
        return there

    def connected(self) -> dict[int, int]:
        """Client -> node of those who have a number."""
        numbers = {name: client for client, name in enumerate(self.names)}
        return {numbers[name]: node for name, node in self.look().items() if name in numbers}

    def newcomers(self) -> list[str]:
        """The names of those who are there and have no number yet."""
        return sorted(set(self.look()) - set(self.names), key=in_order)

    def gather(self, least: int, wait: float) -> None:
        """Wait until so many clients are there, and give each a number if it has none."""
        end = time.monotonic() + wait
        while len(there := self.look()) < least:
            if time.monotonic() > end:
                raise FleetError(
                    f"{len(there)} of {least} clients came within {wait:g} s; start more "
                    "SuperNodes, or lower the run config's clients; the run can be started again"
                )
            time.sleep(PAUSE)
        if not self.names:
            self.names = sorted(there, key=in_order)


def in_order(name: str) -> tuple[bool, int]:
    kind, _, number = name.partition(" ")
    return kind != "partition", int(number)


def name_of(content: RecordDict, node: int) -> str:
    words = content.get("tunefree")
    place = words.get("place", -1) if isinstance(words, ConfigRecord) else -1
    if type(place) is int and 0 <= place < MOST:
        return f"partition {place}"
    return f"node {node}"


def fetched(grid: Grid, numbers: Sequence[str]) -> list[Message]:
    return list(grid.pull_messages(numbers)) if numbers else []


class Post:
    """A fleet whose clients are Flower nodes."""

    def __init__(
        self,
        grid: Grid,
        run: str,
        algo: Algorithm,
        theta0: Vec,
        books: Books,
        members: Members,
        deadline: float,
        at_least: int,
    ) -> None:
        self._grid, self._run, self._theta0 = grid, run, theta0
        self.algo, self.books, self.members = algo, books, members
        self._deadline, self._at_least = deadline, at_least
        self.entering: Sequence[Job] = ()  # go out with the next jobs, and come in beside them
        self.entered: list[tuple[Job, Done]] = []
        self.lost: set[int] = set()  # clients that must begin anew
        self._came: dict[Key, tuple[Job, Done]] = {}

    def work(self, jobs: Sequence[Job]) -> list[Done]:
        """Send all and wait for all, but after the deadline only until enough have come."""
        out, done = self.send([*jobs, *self.entering])
        entering, self.entering = {job.key for job in self.entering}, ()
        least = min(self._at_least, len(jobs))
        began = time.monotonic()
        while out:
            for job, result in self.fetch(out):
                if job.key in entering:
                    self.entered.append((job, result))
                else:
                    done.append(result)
            waited = time.monotonic() - began
            if waited > self._deadline * (1 if usable(done) >= least else PATIENCE):
                break
            time.sleep(PAUSE)
        late = f"its reply did not come within {self._deadline:g} s"
        done += [Done(job.key, None, 0, 0, late) for job in out.values()]
        done = [result for result in done if result.key not in entering]
        if 0 < usable(done) < least:
            self.give_up(jobs[0].t, done)
        return done

    def give_up(self, t: int, done: Sequence[Done]) -> NoReturn:
        reasons = "; ".join(f"client {d.key[0]}: {d.fault}" for d in done if d.fault)
        raise FleetError(
            f"{usable(done)} usable replies came at t = {t}, fewer than at-least = "
            f"{self._at_least} ({reasons}); the run can be started again and goes on from its last "
            "step"
        )

    def send(self, jobs: Sequence[Job]) -> tuple[dict[str, Job], list[Done]]:
        """Message -> job of all that went out, and what is known of the others at once."""
        nodes = self.members.connected()
        there = [job for job in jobs if job.client in nodes]
        messages = []
        for job in there:
            ack = None if job.stage == "opening" else self.books.ack(job.client)
            words = envelope(self._run, max(self.books.N, job.client + 1), job, ack)
            content = packed(words, encode(job.down))
            ttl = self._deadline * PATIENCE
            message = Message(content, nodes[job.client], MessageType.TRAIN, ttl=ttl)
            messages.append(message)
        numbers = list(self._grid.push_messages(messages)) if messages else []
        out = {n: job for n, job in zip(numbers, there, strict=True) if n is not None}
        gone = {job.key for job in out.values()}
        absent = [job for job in jobs if job.key not in gone]
        return out, [Done(job.key, None, 0, 0, NOT_THERE) for job in absent]

    def fetch(self, out: dict[str, Job]) -> list[tuple[Job, Done]]:
        """Jobs whose replies have come; they are no longer out."""
        come = []
        for reply in fetched(self._grid, list(out)):
            job = out.pop(reply.metadata.reply_to_message_id)
            result = self._read(reply, job)
            if result.fault == LOST:
                self.lost.add(job.client)
            self._came[job.key] = (job, result)
            come.append((job, result))
        return come

    def _read(self, reply: Message, job: Job) -> Done:
        sender = f"client {job.client}"
        if reply.has_error():
            return Done(job.key, None, 0, 0, f"its work failed: {last_line(reply.error.reason)}")
        try:
            answer: Answer = unpacked(reply.content, Answer, sender)
            if answer[:4] != (self._run, job.client, job.t, job.exchange):
                raise WireError(f"{sender} answered another job")
            if answer.lost:
                return Done(job.key, None, 0, 0, LOST)
            if not (1 <= answer.n < MOST and 0 <= answer.drawn < 2**62):
                raise WireError(f"{sender} says it holds {answer.n} samples, drew {answer.drawn}")
            kind = upload_kind(self.algo, self._theta0, job)
            data = data_in(reply.content, sender)
            up: Any = decode(data, kind, like=self._theta0, client=job.client)
        except WireError as error:
            return Done(job.key, None, 0, 0, str(error))
        return Done(job.key, up, answer.n, answer.drawn)

    def accept(self, keys: Sequence[Key]) -> None:
        for key in keys:
            self.books.accept(self.algo, *self._came.pop(key))

    def scores(self, theta: Vec) -> dict[str, float]:
        """The mean over clients of the loss (and accuracy) on their own samples."""
        nodes = self.members.connected()
        content = packed(None, encode(OpeningDown(theta)))
        messages = [Message(content, node, MessageType.EVALUATE) for node in nodes.values()]
        waiting = [n for n in self._grid.push_messages(messages) if n is not None]
        found: list[Mapping[str, float]] = []
        end = time.monotonic() + self._deadline
        while waiting and time.monotonic() < end:
            for reply in fetched(self._grid, waiting):
                waiting.remove(reply.metadata.reply_to_message_id)
                if not reply.has_error() and "scores" in reply.content:
                    found.append(cast("Any", reply.content["scores"]))
            time.sleep(PAUSE)
        names = set[str]().union(*found) & {"loss", "accuracy"}
        return {f"train_{name}": mean_of([f[name] for f in found if name in f]) for name in names}

    def close(self) -> None:
        """Nothing to end: the Grid is Flower's."""


def mean_of(values: Sequence[float]) -> float:
    return float(sum(values) / len(values))


def usable(done: Iterable[Done]) -> int:
    return sum(1 for result in done if not result.fault)


def last_line(reason: str | None) -> str:
    lines = [line for line in (reason or "no reason given").strip().splitlines() if line.strip()]
    return lines[-1].strip()[:200]


def upload_kind(algo: Algorithm, theta0: Vec, job: Job) -> type:
    """The kind of message that a job uploads: as it says, or, if it may vary, as on a probe."""
    exchange = exchanges(algo, job.stage)[job.exchange]
    if len(kinds := uploads(exchange.work)) == 1:
        return kinds[0]
    one = replace(cast("Any", algo), sys=algo.sys._replace(K=1))
    work = exchanges(one, job.stage)[job.exchange].work
    return type(work(one.client(theta0), job.down, Probe(job))[1])
