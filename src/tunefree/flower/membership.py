"""Who takes part in a deployment, in real time: the connected clients.

New clients, and those that lost their state, run the opening while the others run a step, and take
part from the next step on. A buffer is full when S replies have actually arrived.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tunefree.core import Algorithm, Generator, Message, Server, about, stream
from tunefree.errors import FleetError
from tunefree.fleet.job import Done, Job
from tunefree.flower.grid import GridFleet
from tunefree.flower.nodes import place_of
from tunefree.flower.pace import Pace
from tunefree.flower.private import Private
from tunefree.schedule.clock import Buffer
from tunefree.schedule.evidence import forgotten, noted
from tunefree.schedule.exchange import Absence, Direction, Step, Traffic, refusal, sent
from tunefree.schedule.gauge import Gauge
from tunefree.schedule.membership import Odds, cohort, draw, probabilities
from tunefree.secure.messages import LEAST
from tunefree.settings import Settings

SHOWN = 5  # reasons, and clients of each, in an error


class Members:
    """The clients that have joined, by number, and those that are joining; also a run's clock.

    For a buffer, always `concurrency` jobs are in flight. Those in flight when the server stops
    are dropped: their clients keep their old states.
    """

    def __init__(
        self,
        fleet: GridFleet,
        settings: Settings,
        wait: float,
        describe: Callable[[Algorithm], Mapping[str, object]],
    ) -> None:
        """`describe` returns the facts that depend on how many clients there are.

        `wait`: seconds after which a step of a buffer goes on with the replies that have come.
        """
        self._fleet, self._nodes, self._ledger = fleet, fleet.nodes, fleet.states
        self._settings, self._wait, self._describe = settings, wait, describe
        self._arrived: dict[int, tuple[Job, Done]] = {}  # by client; not yet in a step
        self._joining: dict[int, Job | None] = {}  # with its opening, if there is one
        self.gauge = Gauge(judges=not settings.secure)
        self._noted = (-1, -1)  # how many clients had joined, and had a number

    @property
    def algo(self) -> Algorithm:
        return self._ledger.algo

    def cohort(self, t: int) -> list[int]:
        """As in a simulation, but clients that are not connected are replaced by others.

        With privacy nobody is replaced; the server waits until somebody is there who can be asked.
        """
        begun, private = self._fleet.begun, self._fleet.private
        if begun and begun[0] == t and not (private and private.released(t)):
            return [i for i, name in enumerate(self._nodes.names) if place_of(name) in begun[1]]
        if private:
            return self._private_cohort(t, private)
        out, odds = self.gauge.out(t), self.odds
        there = set(self.idle(out))
        drawn = cohort(self._settings.seed, t, self.algo.sys, odds)
        chosen = [client for client in drawn if client not in self._joining]
        spare = mixed(
            stream(self._settings.seed, "substitute", t), sorted(there - set(chosen)), odds
        )
        for client in [each for each in chosen if each not in there]:
            if spare:
                chosen[chosen.index(client)] = spare.pop(-1 if odds is None else 0)
        return sorted(set(chosen) - out)

    def _private_cohort(self, t: int, private: Private) -> list[int]:
        end, pace = time.monotonic() + self._wait, Pace(longest=1.0)
        least = LEAST if self._settings.secure else 1
        few = f"fewer than {least} clients were" if least > 1 else "no client was"
        while not private.released(t):
            self._fleet.fetch()
            self._fleet.overdue()
            rng = stream(self._settings.seed, "turn", t)
            chosen = private.cohort(t, self._ledger.N, self.idle(()), rng)
            if len(chosen) >= least or private.guarantee.release.q < 1:
                return chosen
            if time.monotonic() > end:
                raise FleetError(
                    f"{few} there within {self._wait:g} s that may take part once more "
                    f"under epsilon = {private.guarantee.epsilon:g}; start the run again when "
                    "others are there, or with a larger epsilon: it resumes after its last step"
                )
            pace.rest(False)
        return []

    @property
    def odds(self) -> Odds:
        """How likely each client is drawn."""
        if self._settings.sampling == "uniform":
            return None
        return probabilities(self._settings.sampling, self._nodes.sizes(self._ledger.N))

    def idle(self, busy: Collection[int]) -> list[int]:
        """The clients that could be asked now, except the busy ones."""
        there = {client for client in self._nodes.connected() if client < self._ledger.N}
        return sorted(there - self._ledger.lost - {*self._joining, *self._fleet.late, *busy})

    def joining(self, server: Server, t: int) -> list[Job]:
        self._nodes.number_newcomers()
        new, lost = range(self._ledger.N, len(self._nodes.names)), self._ledger.lost
        secure = self._settings.secure  # then nobody sends an opening of its own
        if secure and about(self.algo).means:  # its share of the means is not known
            lost = set()
        first = self._settings.opening == "gradients" and not secure
        openings = self.algo.opening() if first else ()
        down = openings[0].down(server) if openings else None
        ready = {*new, *lost} & self._nodes.connected().keys()
        ready -= {*self._joining, *self._fleet.late, *self.gauge.out(t)}
        jobs = [Job(client, t, "opening", 0, down) for client in sorted(ready)]
        self._joining |= {job.client: job if openings else None for job in jobs}
        return jobs if openings else []

    def admit(self, step: Step, joined: Sequence[tuple[Job, Done]]) -> Step:
        server, absent = step.server, list(step.absent)
        traffic, samples = list(step.traffic), step.samples
        came = {job.client: done for job, done in joined}
        for client, job in sorted(self._joining.items()):
            if job is not None and client not in came:
                continue  # its opening is not finished
            del self._joining[client]
            if client > self._ledger.N:  # the one before it has not joined yet
                continue
            done = came.get(client)
            if job is not None and done is not None:
                traffic.append(sent(0, "down", [job.down]))
                why = refusal(self.algo, self.algo.opening()[0], done, server)
                why = why or self.gauge.judge(self.algo, [(job, done)]).get(client, "")
                if why:
                    absent.append(Absence(0, client, f"cannot join: {why}"))
                    continue
                traffic.append(sent(0, "up", [done.up]))
                samples += done.drawn
            server = self._ledger.enter(server, client, job, done)
            self.gauge.vectors = forgotten(self.gauge.vectors, client)
            if job is not None and done is not None and self.gauge.judges:
                self.gauge.vectors = noted(self.gauge.vectors, self.algo, [(job, done)])
        return step._replace(
            server=server, traffic=add_up(traffic), samples=samples, absent=merge(absent)
        )

    def facts(self) -> Mapping[str, object]:
        if self._noted == (counts := (self._ledger.N, len(self._nodes.names))):
            return {}
        self._noted = counts
        now = {"names": list(self._nodes.names), **self._describe(self.algo)}
        given = self._settings
        if given.local_epochs or (given.sampling, given.weighting) != ("uniform", "uniform"):
            now["sizes"] = self._nodes.sizes(len(self._nodes.names))
        return now

    def silence(self, step: Step, steps: int, called: Callable[[int], str]) -> Exception:
        reasons: dict[str, list[int]] = {}
        for _, client, why in step.absent:
            reasons.setdefault(why, []).append(client)
        listed = "; ".join(
            f"client{'s' * (len(who) > 1)} {', '.join(map(str, who[:SHOWN]))}"
            f"{', ...' * (len(who) > SHOWN)}: {why}"
            for why, who in list(reasons.items())[:SHOWN]
        )
        return FleetError(
            f"no usable reply came for {steps} steps in a row, up to t = {step.t} "
            f"({listed or 'no client is connected'}); correct this, and start the run again to "
            "resume it"
        )

    def wait_for(self, clients: Sequence[int], trips: int) -> float:
        return 0.0

    def replay(self, steps: int, cohort: Callable[[int], Sequence[int]], trips: int) -> None:
        """Nothing to replay: time is real."""

    def fill(self, t: int, downs: Mapping[int, Message], joining: Sequence[Job]) -> Buffer:
        """S usable replies, or fewer if no other client can be asked; further ones wait."""
        fleet, S, arrived = self._fleet, self.algo.sys.S, self._arrived
        by_key = {job.key: job for job in joining}
        joined = [(by_key[done.key], done) for done in fleet.send(joining)]
        absent: list[Absence] = []
        downloads, end, pace = 0, time.monotonic() + self._wait, Pace(longest=1.0)
        while len(arrived) < S and time.monotonic() < end:
            idle = self._askable(t, downloads, {each.client for each in absent})
            room = (self._settings.concurrency or S) - len(self._working)
            jobs = [Job(client, t, "round", 0, downs[t]) for client in idle[: max(0, room)]]
            downloads += len(jobs) - len(fleet.send(jobs))
            come = [*fleet.fetch(), *fleet.overdue()]
            for job, done in come:
                if job.stage == "opening":
                    joined.append((job, done))
                elif done.fault:
                    absent.append(Absence(0, job.client, done.fault))
                else:
                    arrived[job.client] = (job, done)
            if not idle and not self._working and (arrived or absent):
                break
            if come or len(arrived) < S:
                pace.rest(come)
        taken = [arrived.pop(client) for client in sorted(list(arrived)[:S])]
        replies = [done for _, done in taken]
        fleet.require(S, replies, t)
        jobs = [job for job, _ in taken]
        return Buffer(0.0, jobs, replies, downloads, (), tuple(absent), joined)

    def _askable(self, t: int, downloads: int, absent: Collection[int]) -> list[int]:
        """The clients that could be asked now, in random order; none twice in a step."""
        working = {job.client for job in self._working}
        idle = self.idle({*working, *self._arrived, *absent, *self.gauge.out(t)})
        return mixed(stream(self._settings.seed, "dispatch", t, downloads), idle, self.odds)

    @property
    def _working(self) -> list[Job]:
        return [job for job in self._fleet.in_flight if job.stage == "round"]


def mixed(rng: Generator, clients: list[int], odds: Odds) -> list[int]:
    """The clients in random order; with odds, the likely ones tend to be first."""
    if odds is None or not clients:
        rng.shuffle(clients)
        return clients
    return draw(rng, clients, len(clients), odds)


def add_up(lines: Iterable[Traffic]) -> tuple[Traffic, ...]:
    """One line for each exchange and direction."""
    total: dict[tuple[int, Direction], Traffic] = {}
    for line in lines:
        key = (line.exchange, line.direction)
        before = total.get(key, Traffic(*key, 0, 0, 0))
        sums = (a + b for a, b in zip(before[2:], line[2:], strict=True))
        total[key] = Traffic(*key, *sums)
    return tuple(total.values())


def merge(absent: Sequence[Absence]) -> tuple[Absence, ...]:
    """One line for each client and exchange, with all its reasons."""
    reasons: dict[tuple[int, int], list[str]] = {}
    for exchange, client, reason in absent:
        reasons.setdefault((exchange, client), []).append(reason)
    return tuple(Absence(e, c, "; ".join(why)) for (e, c), why in reasons.items())
