"""The clock of a deployment: a buffer is full when S replies have actually arrived."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

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
        self._deployment, self._concurrency, self._seed = deployment, concurrency, seed
        self._arrived: dict[int, tuple[Job, Done]] = {}  # by client; not yet in a step

    def wait_for(self, clients: Sequence[int], trips: int) -> float:
        return 0.0

    def replay(self, steps: int, cohort: Callable[[int], Sequence[int]], trips: int) -> None:
        """Nothing to replay: time is real."""

    def fill(self, t: int, downs: Mapping[int, Message], joining: Sequence[Job]) -> Buffer:
        """S usable replies, or fewer if no other client can be asked; further ones wait."""
        fleet, S = self._fleet, self._members.algo.sys.S
        buffer = self._arrived
        absent: list[Absence] = []
        by_key = {job.key: job for job in joining}
        joined = [(by_key[done.key], done) for done in fleet.send(joining)]
        downloads, end, pace = 0, time.monotonic() + self._deployment.wait, Pace(longest=1.0)
        while len(buffer) < S and time.monotonic() < end:
            flying = [job for job in fleet.in_flight if job.stage == "round"]
            busy = {job.client for job in flying} | set(buffer)
            busy |= {a.client for a in absent}  # not asked twice in a step
            idle = self._members.idle(busy)
            rng, odds = stream(self._seed, "dispatch", t, downloads), self._members.odds
            idle = mixed(rng, idle, odds)
            room = max(0, (self._concurrency or S) - len(flying))
            jobs = [Job(client, t, "round", 0, downs[t]) for client in idle[:room]]
            downloads += len(jobs) - len(fleet.send(jobs))
            come = [*fleet.fetch(), *fleet.overdue()]
            for job, done in come:
                if job.stage == "opening":
                    joined.append((job, done))
                elif done.fault:
                    absent.append(Absence(0, job.client, done.fault))
                else:
                    buffer[job.client] = (job, done)
            waiting = any(job.stage == "round" for job in fleet.in_flight)
            if not waiting and not idle and (buffer or absent):
                break
            if come:
                pace.news()
            elif len(buffer) < S:
                time.sleep(pace.pause())
        ready = [buffer.pop(client) for client in sorted(list(buffer)[:S])]
        if 0 < len(ready) < min(self._deployment.at_least, S):
            fleet.give_up(t, [done for _, done in ready])
        jobs, replies = [job for job, _ in ready], [done for _, done in ready]
        return Buffer(0.0, jobs, replies, downloads, (), tuple(absent), joined)
