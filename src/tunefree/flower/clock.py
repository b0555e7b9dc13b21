"""The clock of a deployment: a buffer is full when S replies have actually arrived."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence

from tunefree.core import Message, stream
from tunefree.fleet.job import Done, Job
from tunefree.flower.grid import GridFleet
from tunefree.flower.membership import Members, mixed
from tunefree.flower.pace import Pace
from tunefree.schedule.clock import Buffer
from tunefree.schedule.exchange import Absence
from tunefree.settings import Deployment


class LiveClock:
    """Always `concurrency` jobs in flight; time is real, so virtual time stands still.

    Jobs in flight when the server stops are dropped: their clients keep their old states.
    """

    def __init__(
        self,
        fleet: GridFleet,
        members: Members,
        deployment: Deployment,
        concurrency: int,
        seed: int,
    ) -> None:
        self._fleet, self._members = fleet, members
        self._wait, self._at_least = deployment.wait, deployment.at_least
        self._concurrency, self._seed = concurrency, seed
        self._arrived: dict[int, tuple[Job, Done]] = {}  # by client; not yet in a step

    def wait_for(self, clients: Sequence[int], trips: int) -> float:
        return 0.0

    def replay(self, steps: int, cohort: Callable[[int], Sequence[int]], trips: int) -> None:
        """Nothing to replay: time is real."""

    def fill(self, t: int, downs: Mapping[int, Message], joining: Sequence[Job]) -> Buffer:
        """S usable replies, or fewer if no other client can be asked; further ones wait."""
        fleet, S, arrived = self._fleet, self._members.algo.sys.S, self._arrived
        by_key = {job.key: job for job in joining}
        joined = [(by_key[done.key], done) for done in fleet.send(joining)]
        absent: list[Absence] = []
        downloads, end, pace = 0, time.monotonic() + self._wait, Pace(longest=1.0)
        while len(arrived) < S and time.monotonic() < end:
            idle = self._idle(t, downloads, {each.client for each in absent})
            downloads += self._send(t, downs[t], idle)
            come = [*fleet.fetch(), *fleet.overdue()]
            for job, done in come:
                if job.stage == "opening":
                    joined.append((job, done))
                elif done.fault:
                    absent.append(Absence(0, job.client, done.fault))
                else:
                    arrived[job.client] = (job, done)
            nobody_left = not idle and not self._working()
            if nobody_left and (arrived or absent):
                break
            if come or len(arrived) < S:
                pace.rest(come)
        jobs, replies = self._take(S)
        if 0 < len(replies) < min(self._at_least, S):
            fleet.give_up(t, replies)
        return Buffer(0.0, jobs, replies, downloads, (), tuple(absent), joined)

    def _idle(self, t: int, downloads: int, absent: Collection[int]) -> list[int]:
        """The clients that could be asked now, in random order; none twice in a step."""
        working = {job.client for job in self._working()}
        idle = self._members.idle({*working, *self._arrived, *absent})
        return mixed(stream(self._seed, "dispatch", t, downloads), idle, self._members.odds)

    def _send(self, t: int, down: Message, idle: Sequence[int]) -> int:
        """Send the model to as many of these clients as there is room for; returns to how many."""
        room = (self._concurrency or self._members.algo.sys.S) - len(self._working())
        jobs = [Job(client, t, "round", 0, down) for client in idle[: max(0, room)]]
        return len(jobs) - len(self._fleet.send(jobs))

    def _working(self) -> list[Job]:
        return [job for job in self._fleet.in_flight if job.stage == "round"]

    def _take(self, S: int) -> tuple[list[Job], list[Done]]:
        """Up to S of the replies that have arrived, in client order."""
        taken = [self._arrived.pop(client) for client in sorted(list(self._arrived)[:S])]
        return [job for job, _ in taken], [done for _, done in taken]
