"""A fleet whose clients give the server sums only: four trips an exchange, and further attempts.

What a sum needs from its list of survivors on, and then the sum, is in a file beside the run file,
one per exchange, so that a server that was killed goes on with the same sum: nodes that have opened
it take part in no other one of that round.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flwr.app import MessageType, RecordDict

from tunefree.core import Message, Vec
from tunefree.errors import ConfigError, FleetError, WireError
from tunefree.fleet.job import Done, Job
from tunefree.fleet.summed import Exponents, Form, largest
from tunefree.flower.client_work import common
from tunefree.flower.envelope import Answer, data_in, pack, unpack
from tunefree.flower.grid import LOST, GridFleet, failed
from tunefree.flower.nodes import place_of
from tunefree.flower.pace import Pace
from tunefree.flower.trips import EXCHANGES, SECURE, bound, number_of, trip, work_hash
from tunefree.secure.arithmetic import Words
from tunefree.secure.messages import AGREE, LEAST, OPEN, PREKEYS, SHARES, UPLOAD, Saved, Turn
from tunefree.secure.messages import decode as read
from tunefree.secure.messages import encode as written
from tunefree.secure.roster import Roster
from tunefree.secure.server import Attempt, Pool
from tunefree.secure.sizes import beside
from tunefree.wire import encode

log = logging.getLogger("flwr")  # shown by `flwr run --stream`
AT_A_TIME = 64  # prekeys


class Sum(NamedTuple):
    """A sum as it is on disk: from its list of survivors on, and once it is known."""

    exponents: Exponents
    kept: bytes  # of `Attempt.saved`; with the sum in place of masked words, if it is known
    known: bool


class SecureFleet:
    """Flower's nodes, asked for sums."""

    def __init__(self, fleet: GridFleet, roster: Roster, run: str, out: Path, theta0: Vec) -> None:
        self._fleet, self._roster, self._run, self._theta0 = fleet, roster, run, theta0
        self._out, self._pool, self._last = out, Pool(roster, run), 0
        self.states = fleet.states
        if (begun := self._stored(0)) is not None:
            attempt = Attempt.restored(roster, begun.kept)
            fleet.begun = (attempt.cohort.turn.round // EXCHANGES - 1, attempt.survivors)

    def work(self, jobs: Sequence[Job]) -> list[Done]:
        """The mean of all that can be added up, as the reply of each client in it."""
        if not jobs:
            return []
        self._wait_for({job.client for job in jobs})
        places = {self._place(job.client): job for job in jobs}
        faults: dict[int, str] = {}  # by place
        for place in places.keys() - self._roster.keys.keys():
            faults[place] = "it is not in the roster"
        while True:
            left = {place: job for place, job in places.items() if place not in faults}
            if len(left) < LEAST:
                few = f"{len(left)} clients are too few for a secure sum, which needs {LEAST}"
                return [failed(job, faults.get(place, few)) for place, job in places.items()]
            before = len(faults)
            try:
                mean, survivors, extra = self._sum(left, faults)
                break
            except FleetError as error:
                log.warning("%s", error)
                if len(faults) == before:  # the same would happen again
                    return [failed(job, faults.get(p, str(error))) for p, job in places.items()]
        done = [
            Done(job.key, mean, 1, 0, beside=extra)
            if place in survivors
            else failed(job, faults.get(place, "it dropped out of the secure sum"))
            for place, job in places.items()
        ]
        self._fleet.require(len(jobs), done, jobs[0].t)
        return done

    def _wait_for(self, clients: set[int]) -> None:
        """Until so many are not late that there can be a sum; late ones are given up at last."""
        pace = Pace(longest=1.0)
        while True:
            self._fleet.fetch()
            self._fleet.overdue()
            late = clients & self._fleet.late.keys()
            if not late or len(clients) - len(late) >= LEAST:
                return
            pace.rest(None)

    def _sum(
        self, jobs: Mapping[int, Job], faults: dict[int, str]
    ) -> tuple[Message, Sequence[int], tuple[int, int, int]]:
        """One attempt: the mean, and whose; adds to `faults` who drops out, and why."""
        job = next(iter(jobs.values()))
        private = self._fleet.private
        bound = (private and private.bound) or 0.0
        form = Form.of(self.states.algo, job, self._theta0, bound)
        turn = Turn(self._run, number_of(job.t, job.exchange), self._next_attempt())
        begun = self._stored(job.exchange)
        if (
            begun is not None
            and Attempt.restored(self._roster, begun.kept).cohort.turn[:2] == turn[:2]
        ):
            attempt = Attempt.restored(self._roster, begun.kept)
            exponents = begun.exponents
        else:
            begun = None
            self._fill(jobs, faults)
            there = {place: each for place, each in jobs.items() if place not in faults}
            if len(there) < LEAST:
                raise FleetError(f"{len(there)} clients have prekeys for a secure sum")
            cohort = self._pool.take(there)
            terms = form.terms(len(there))
            terms = private.terms(terms) if private else terms
            attempt = Attempt.of(self._roster, turn, terms, cohort)
            exponents = self._masked(attempt, there, faults, form)
            attempt.agree()
            self._store(job.exchange, Sum(exponents, attempt.saved(), False))
        if begun is not None and begun.known:
            total = np.frombuffer(read(begun.kept, Saved, len(begun.kept)).words, "<u4")
        else:
            total = self._opened(attempt, job, jobs, faults)
            saved = read(attempt.saved(), Saved, len(attempt.saved()))
            known = saved._replace(words=total.astype("<u4").tobytes())
            self._store(job.exchange, Sum(exponents, written(known), True))
        terms = attempt.cohort.terms
        if private:
            private.take(total.astype(np.uint32), terms)
        mean = form.mean(total.astype(np.uint32), exponents, terms, len(attempt.survivors))
        sizes = len(attempt.cohort.nodes), len(attempt.survivors), len(terms.counts)
        return mean, attempt.survivors, beside(*sizes)

    def _masked(
        self, attempt: Attempt, jobs: Mapping[int, Job], faults: dict[int, str], form: Form
    ) -> Exponents:
        """3 to 7. Clients share their secrets and work; then they upload, at one scale."""
        exponents: dict[int, Exponents] = {}
        invite = trip(SHARES, attempt.invite)
        job = next(iter(jobs.values()))
        down = encode(job.down)
        contents = {}
        for place, each in jobs.items():
            contents[place] = pack(self._fleet.envelope(each), down)
            contents[place][SECURE] = invite

        def joined(place: int, content: RecordDict) -> None:
            answer: Answer = unpack(content, Answer, f"client {jobs[place].client}")
            if answer.lost:
                self.states.lost.add(jobs[place].client)
                raise WireError(LOST)
            told = tuple(map(int, answer.exponents.split()))
            if len(told) != len(form.bounds) or not all(
                abs(e) < (1 if bound else 1000) for e, bound in zip(told, form.bounds, strict=True)
            ):
                raise WireError("its exponents are not one for each field without a bound")
            attempt.receive(place, data_in(content, "it"))
            exponents[place] = told

        self._trip(contents, jobs, faults, joined)
        for place in jobs.keys() & faults.keys():
            self._pool.forget(place)
        if not exponents:
            raise FleetError("no client has joined a secure sum")
        agreed = largest(list(exponents.values()))
        work = work_hash(common(self._fleet.envelope(job)), down)
        requests = attempt.deliver(bound(work, agreed))
        trips = {p: trip(UPLOAD, data, exponents=list(agreed)) for p, data in requests.items()}
        self._trip(self._records(trips), jobs, faults, self._receive(attempt))
        return agreed

    def _opened(
        self, attempt: Attempt, job: Job, jobs: Mapping[int, Job], faults: dict[int, str]
    ) -> Words:
        """9 to 11. Survivors sign who they are, and open the sum; a wrong signature spoils it."""
        receive, needed = self._receive(attempt), attempt.cohort.needed
        for step, message in ((AGREE, attempt.agree), (OPEN, attempt.open)):
            request, without = trip(step, message()), dict[int, str]()
            asked = self._records(dict.fromkeys(attempt.asked, request))
            wrong = self._trip(asked, jobs, without, receive)
            if step == AGREE and (wrong or len(asked) - len(without) < needed):
                faults |= without  # nobody has opened anything: the round can be repeated
                self._path(job.exchange).unlink()
                why = "were told other words" if wrong else "did not sign"
                raise FleetError(f"clients {sorted(without)} {why}; the round is repeated")
        return attempt.integers()

    def _receive(self, attempt: Attempt) -> Callable[[int, RecordDict], None]:
        return lambda place, content: attempt.receive(place, data_in(content, "it"))

    def _records(self, trips: Mapping[int, Any]) -> dict[int, RecordDict]:
        return {place: RecordDict({SECURE: each}) for place, each in trips.items()}

    def _fill(self, jobs: Mapping[int, Job], faults: dict[int, str]) -> None:
        """2. Ask those without a prekey for a batch."""
        empty = [place for place in jobs if not self._pool.left(place)]
        ask = trip(PREKEYS, run=self._run, count=AT_A_TIME)

        def receive(place: int, content: RecordDict) -> None:
            self._pool.receive(place, data_in(content, "it"))

        self._trip(self._records(dict.fromkeys(empty, ask)), jobs, faults, receive)

    def _trip(
        self,
        contents: Mapping[int, RecordDict],
        jobs: Mapping[int, Job],
        faults: dict[int, str],
        receive: Callable[[int, RecordDict], None],
    ) -> dict[int, str]:
        """One message to each client and its answer; who gives none that can be used drops out.

        Returns those that gave a wrong one, and why.
        """
        clients = {jobs[place].client: place for place in contents if place in jobs}
        asked = {client: contents[place] for client, place in clients.items()}
        most = self._roster.most + 4 * (self._theta0.numel() + 64) * EXCHANGES
        by_client = {client: jobs[place] for client, place in clients.items()}
        answers, why = self._fleet.ask(asked, MessageType.TRAIN, most, by_client)
        wrong = {}
        for client, content in sorted(answers.items()):
            try:
                receive(clients[client], content)
            except (WireError, ValueError) as error:
                wrong[clients[client]] = str(error)
        faults |= {clients[client]: reason for client, reason in why.items()} | wrong
        return wrong

    def _next_attempt(self) -> int:
        """Later than any before, also those of a server that was killed."""
        self._last = max(self._last + 1, time.time_ns() // 10**6)
        return self._last

    def _place(self, client: int) -> int:
        if (place := place_of(self._fleet.nodes.names[client])) < 0:
            raise ConfigError("secure sums need a partition-id in every node's config")
        return place

    def _path(self, exchange: int) -> Path:
        return self._out.with_name(f"{self._out.name}.sum{exchange}")

    def _stored(self, exchange: int) -> Sum | None:
        """The sum that this run had begun, if there is one."""
        try:
            head, _, kept = self._path(exchange).read_bytes().partition(b"\n")
            words = json.loads(head)
        except (OSError, ValueError):
            return None
        if words["run"] != self._run:
            return None
        return Sum(tuple(words["exponents"]), kept, words["known"])

    def _store(self, exchange: int, now: Sum) -> None:
        """On disk when this returns, all or nothing."""
        path = self._path(exchange)
        head = {"run": self._run, "exponents": now.exponents, "known": now.known}
        new = path.with_name(path.name + ".new")
        with new.open("wb") as file:
            file.write(json.dumps(head).encode() + b"\n" + now.kept)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)

    def close(self) -> None:
        self._fleet.close()
