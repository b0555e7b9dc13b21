"""The virtual clock of the buffered loop: who works on which model, and when its upload arrives.

`concurrency` jobs are in flight at any time. Who gets a model, and when (`dispatch`):

    flush      after each step, S clients drawn from the idle ones; with concurrency = S this
               is the synchronous schedule, bit for bit
    immediate  after each upload, one idle client
    queue      after each step, S clients drawn from all N; a busy one queues its jobs

A client is busy until its upload has been used in a step: only then does it know its new state, so
only then may its next job start. Hence the S jobs of a buffer can be computed when it is full, all
at once on a pool, with the same result as if each had been done at its download. In `flush` and
`queue` an upload that waits for its step counts as in flight, in `immediate` it does not.

A job is lost if its client does not reply (probability `dropout`) or takes longer than `timeout`.
After `timeout` its place goes to an idle client; the client of the lost job keeps its old state,
and if it gets the same model again, it does the same job again. The order of events depends on
seed, delays and settings only, never on what is computed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from tunefree.core import Generator, Message, System, stream
from tunefree.errors import ConfigError
from tunefree.fleet.job import Fleet, Job
from tunefree.schedule.clock import Buffer, VirtualClock
from tunefree.schedule.exchange import Absence
from tunefree.schedule.gauge import Gauge
from tunefree.schedule.membership import Odds, draw
from tunefree.settings import Dispatch

QUARANTINED = "it is in quarantine"
LOST_IN_A_ROW = 1000  # lost jobs, after which the run gives up


class Ticket(NamedTuple):
    """One client's job, and the server step whose model it got."""

    number: int  # counts all downloads; the lower one is first at the same moment
    client: int
    t: int


class Arrivals(NamedTuple):
    """What fills one buffer: S uploads in client order, no client twice."""

    time: float
    tickets: list[Ticket]
    downloads: int  # since the last buffer, including those of lost jobs
    awaited: set[int]  # steps whose models clients still work on


class Timeline:
    """Jobs that were sent and not used yet; a client does its own one by one."""

    def __init__(
        self,
        seed: int,
        sys: System,
        *,
        concurrency: int,
        dispatch: Dispatch,
        clock: VirtualClock,
        dropout: float,
        timeout: float,
        fleet: Fleet,
        odds: Odds = None,
        gauge: Gauge | None = None,
    ) -> None:
        """Of clients that `gauge` has in quarantine, no job is computed."""
        self._odds, self._gauge = odds, gauge or Gauge()
        self._seed, self._sys, self._clock, self._fleet = seed, sys, clock, fleet
        self._concurrency, self._dispatch = concurrency, dispatch
        self._dropout, self._timeout = dropout, timeout
        self._t, self._number = 0, 0
        self._jobs: dict[int, deque[Ticket]] = {}  # each client's jobs; it works on the first
        self._events: list[tuple[float, Ticket, bool]] = []  # when a first job ends, and if lost
        self._arrivals = self._all_arrivals()

    def wait_for(self, clients: Sequence[int], trips: int) -> float:
        return self._clock.wait_for(clients, trips)

    def replay(self, steps: int, cohort: Callable[[int], Sequence[int]], trips: int) -> None:
        for _ in range(steps):
            next(self._arrivals)

    def fill(self, t: int, downs: Mapping[int, Message], joining: Sequence[Job]) -> Buffer:
        """The next full buffer, computed now."""
        time, tickets, downloads, awaited = next(self._arrivals)
        out = self._gauge.out(t)
        jobs = [Job(i, then, "round", 0, downs[then]) for _, i, then in tickets if i not in out]
        absent = tuple(Absence(0, i, QUARANTINED) for _, i, _ in tickets if i in out)
        return Buffer(time, jobs, self._fleet.work(jobs), downloads, awaited, absent)

    def __iter__(self) -> Iterator[Arrivals]:
        """The buffers as they fill, without end."""
        return self._arrivals

    def _all_arrivals(self) -> Iterator[Arrivals]:
        self._send(self._concurrency)
        before = 0
        while True:
            tickets = sorted(self._fill(), key=lambda ticket: ticket.client)
            used = set(tickets)
            awaited = {job.t for jobs in self._jobs.values() for job in jobs if job not in used}
            yield Arrivals(self._clock.now, tickets, self._number - before, awaited)
            before, self._t = self._number, self._t + 1
            for ticket in tickets:
                self._release(ticket)
            if self._dispatch == "immediate":
                self._replace()
            else:
                self._send(self._sys.S)

    def _fill(self) -> list[Ticket]:
        """Advance time until S uploads have arrived."""
        buffer: list[Ticket] = []
        lost_in_a_row = 0
        while len(buffer) < self._sys.S:
            self._clock.now, ticket, lost = heappop(self._events)
            lost_in_a_row = lost_in_a_row + 1 if lost else 0
            if lost_in_a_row == LOST_IN_A_ROW:
                raise ConfigError(
                    f"{LOST_IN_A_ROW} jobs in a row got no reply with dropout = "
                    f"{self._dropout:g} and timeout = {self._timeout:g}; lower the first or raise "
                    "the second"
                )
            if lost:
                self._release(ticket)
                self._replace()
            else:
                buffer.append(ticket)
                if self._dispatch == "immediate" and len(buffer) < self._sys.S:
                    self._replace()
        return buffer

    def _send(self, count: int) -> None:
        """Send the model to clients drawn like a synchronous cohort, from those that may get it."""
        busy = [] if self._dispatch == "queue" else self._jobs
        self._draw(stream(self._seed, "cohort", self._t), count, busy)

    def _replace(self) -> None:
        """Send the model to one idle client."""
        self._draw(stream(self._seed, "refill", self._number), 1, self._jobs)

    def _draw(self, rng: Generator, count: int, busy: Collection[int]) -> None:
        """Send the model to `count` distinct clients that are not busy."""
        taken = sorted(busy)
        if self._odds is None:
            places = rng.choice(self._sys.N - len(taken), count, replace=False)
            chosen = [free(int(place), taken) for place in places]
        else:
            idle = sorted(set(range(self._sys.N)) - set(taken))
            chosen = draw(rng, idle, count, self._odds)
        for client in sorted(chosen):
            self._assign(client)

    def _assign(self, client: int) -> None:
        ticket = Ticket(self._number, client, self._t)
        self._number += 1
        jobs = self._jobs.setdefault(client, deque())
        jobs.append(ticket)
        if len(jobs) == 1:
            self._start(ticket)

    def _start(self, ticket: Ticket) -> None:
        seconds = self._clock.seconds(ticket.client)
        silent = stream(self._seed, "dropout", ticket.number).random() < self._dropout
        lost = silent or seconds > self._timeout
        heappush(
            self._events, (self._clock.now + (self._timeout if lost else seconds), ticket, lost)
        )

    def _release(self, ticket: Ticket) -> None:
        """The job is over: the client starts its next one, or becomes idle."""
        jobs = self._jobs[ticket.client]
        jobs.popleft()
        if jobs:
            self._start(jobs[0])
        else:
            del self._jobs[ticket.client]


def free(place: int, taken: Sequence[int]) -> int:
    """The client at that index among those that are not taken.

    >>> [free(place, [0, 2, 3]) for place in range(4)]
    [1, 4, 5, 6]
    """
    for client in taken:
        if client > place:
            break
        place += 1
    return place
