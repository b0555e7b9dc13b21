"""Schedules in real time: rounds that wait until a deadline, or a buffer filled as replies come.

A client that was not there at the beginning, or that comes back without its memory, begins with
the opening while the others play a step, and takes part from the next step on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from tunefree.core import Algorithm, Message, Server, Vec, stream
from tunefree.fleet.job import Done, Job, exchanges
from tunefree.flower.grid import PAUSE, Post
from tunefree.flower.settings import Settings
from tunefree.schedule.cohort import cohort
from tunefree.schedule.exchange import Absence, Direction, Step, Traffic, hear, play, sent, uploads
from tunefree.wire.message import fault

Builds = Callable[[int], Algorithm]  # the algorithm for so many clients


class Live:
    """A federation in real time: iterate `steps` for one Step after the other."""

    def __init__(self, post: Post, builds: Builds, theta0: Vec, settings: Settings) -> None:
        self._post, self._builds, self._theta0, self._settings = post, builds, theta0, settings
        self._began = time.monotonic()
        self._since: dict[str, float] = {}  # buffered: when each message went out

    def steps(self, after: Step | None) -> Iterator[Step]:
        """The opening as step -1, then the T server steps; or only those after a given one."""
        step = after or self._opened()
        if after is None:
            yield step
        else:
            self._began -= after.time
        buffered = self._settings.schedule == "buffered"
        yield from self._buffered(step) if buffered else self._rounds(step)

    def _opened(self) -> Step:
        algo, post = self._post.algo, self._post
        server = algo.server(self._theta0)
        if self._settings.opening == "zero" or not algo.opening():
            return Step(-1, server, [], (), 0)
        step = play(algo, post, server, -1, "opening", range(algo.sys.N))
        return step._replace(time=self._time())

    def _time(self) -> float:
        return time.monotonic() - self._began

    def _rounds(self, step: Step) -> Iterator[Step]:
        post, seed = self._post, self._settings.seed
        for t in range(step.t + 1, self._settings.rounds):
            entering = self._entering(step.server, t)
            post.entering = [job for job in entering.values() if job]
            clients = self._cohort(seed, t, set(entering))
            if clients:
                step = play(post.algo, post, step.server, t, "round", clients)
            else:
                post.work(())  # all who are there begin
                step = Step(t, step.server, [], (), 0)
            step = self._with_entries(step, entering)._replace(time=self._time())
            yield step

    def _cohort(self, seed: int, t: int, busy: set[int]) -> list[int]:
        """As in the simulator, but those who are not there are replaced by others who are."""
        sys = self._post.algo.sys
        there = {i for i in self._post.members.connected() if i < sys.N} - busy
        chosen = [i for i in cohort(seed, t, sys) if i not in busy]
        spare = sorted(there - set(chosen))
        stream(seed, "substitute", t).shuffle(spare)
        for client in [i for i in chosen if i not in there]:
            if spare:
                chosen[chosen.index(client)] = spare.pop()
        return sorted(chosen)

    def _entering(self, server: Server, t: int) -> dict[int, Job | None]:
        """Who begins during step t, with the opening to play if there is one."""
        post = self._post
        for name in post.members.newcomers():
            post.members.names.append(name)
        new = range(post.books.N, len(post.members.names))
        there = post.members.connected()
        openings = post.algo.opening() if self._settings.opening == "gradients" else ()
        down = openings[0].down(server) if openings else None
        return {
            client: Job(client, t, "opening", 0, down) if openings else None
            for client in sorted({*new, *post.lost} & set(there))
        }

    def _with_entries(self, step: Step, entering: dict[int, Job | None]) -> Step:
        """The step, and after it those who began while it was played."""
        post, server, absent = self._post, step.server, list(step.absent)
        traffic, drawn = list(step.traffic), step.drawn
        came = {job.client: (job, done) for job, done in post.entered}
        post.entered = []
        for client, job in entering.items():
            if client > post.books.N:  # the one before it has not begun yet
                continue
            done = came[client][1] if client in came else None
            if job is not None:
                traffic.append(sent(0, "down", [job.down]))
                why = self._wrong(job, done, server)
                if done is None or why:
                    absent.append(Absence(0, client, f"cannot begin: {why}"))
                    continue
                traffic.append(sent(0, "up", [done.up]))
                drawn += done.drawn
            server = post.books.enter(post.algo, server, client, job, done)
            post.lost.discard(client)
        if post.books.N != post.algo.sys.N:
            post.algo = self._builds(post.books.N)
        return step._replace(
            server=server, traffic=added(traffic), drawn=drawn, absent=once(absent)
        )

    def _wrong(self, job: Job, done: Done | None, server: Server) -> str:
        if done is None:
            return "its reply did not come"
        kinds = uploads(exchanges(self._post.algo, job.stage)[job.exchange].work)
        return done.fault or fault(done.up, kinds, server.theta)

    def _buffered(self, step: Step) -> Iterator[Step]:
        """Always `concurrency` jobs out; a step whenever S replies are there, in client order.

        Jobs that are out when the server stops are forgotten: their clients keep their old states.
        """
        post, settings, server = self._post, self._settings, step.server
        out: dict[str, Job] = {}
        beginning: dict[str, Job] = {}
        entering: dict[int, Job | None] = {}
        for t in range(step.t + 1, settings.rounds):
            algo = post.algo
            (exchange,) = algo.round()
            down = exchange.down(server)
            new = {i: job for i, job in self._entering(server, t).items() if i not in entering}
            entering |= new
            beginning |= self._sent([job for job in new.values() if job])
            ready, downloads, absent = self._filled(t, down, out, beginning, set(entering))
            if 0 < len(ready) < min(settings.at_least, algo.sys.S):
                post.give_up(t, [done for _, done in ready])
            step = Step(t, server, [], (sent(0, "down", [down] * downloads),), 0)
            if ready:
                jobs, done = [job for job, _ in ready], [result for _, result in ready]
                heard = hear(algo, exchange, post, server, t, jobs, done)
                step = step._replace(
                    server=heard.server,
                    clients=[reply.client for reply in heard.replies],
                    traffic=(*step.traffic, heard.traffic),
                    drawn=heard.drawn,
                    staleness=tuple(reply.tau for reply in heard.replies),
                )
                absent += heard.absent
            step = step._replace(time=self._time(), absent=tuple(absent))
            self._overdue(beginning)
            waiting = {job.client for job in beginning.values()}
            begun = {i: entering.pop(i) for i in set(entering) - waiting}
            step = self._with_entries(step, dict(sorted(begun.items())))
            server = step.server
            yield step

    def _filled(
        self, t: int, down: Message, out: dict[str, Job], beginning: dict[str, Job], busy: set[int]
    ) -> tuple[list[tuple[Job, Done]], int, list[Absence]]:
        """S replies that can be read, or fewer if nobody else can be asked; downloads; absences."""
        post, settings, sys = self._post, self._settings, self._post.algo.sys
        buffer: dict[int, tuple[Job, Done]] = {}
        absent: list[Absence] = []
        downloads, end = 0, time.monotonic() + settings.wait
        while len(buffer) < sys.S and time.monotonic() < end:
            taken = {job.client for job in out.values()} | set(buffer) | busy | post.lost
            taken |= {a.client for a in absent}  # not asked twice in a step
            idle = sorted(i for i in post.members.connected() if i < sys.N and i not in taken)
            stream(settings.seed, "dispatch", t, downloads).shuffle(idle)
            room = max(0, (settings.concurrency or sys.S) - len(out))
            new = self._sent([Job(client, t, "round", 0, down) for client in idle[:room]])
            out |= new
            downloads += len(new)
            post.entered += post.fetch(beginning)
            for job, done in post.fetch(out):
                if done.fault:
                    absent.append(Absence(0, job.client, done.fault))
                else:
                    buffer[job.client] = (job, done)
            why = f"its reply did not come within {settings.deadline:g} s"
            absent += [Absence(0, job.client, why) for job in self._overdue(out)]
            if not out and not idle and (buffer or absent):
                break
            time.sleep(PAUSE)
        return [buffer[client] for client in sorted(buffer)], downloads, absent

    def _sent(self, jobs: Sequence[Job]) -> dict[str, Job]:
        out, _ = self._post.send(jobs)
        self._since |= dict.fromkeys(out, time.monotonic())
        return out

    def _overdue(self, out: dict[str, Job]) -> list[Job]:
        """Jobs whose deadline has passed; they are no longer out."""
        late = time.monotonic() - self._settings.deadline
        return [out.pop(number) for number in list(out) if self._since[number] < late]


def added(lines: Iterable[Traffic]) -> tuple[Traffic, ...]:
    """One line for each exchange and direction."""
    total: dict[tuple[int, Direction], Traffic] = {}
    for line in lines:
        key = (line.exchange, line.direction)
        before = total.get(key, Traffic(*key, 0, 0, 0))
        sums = (a + b for a, b in zip(before[2:], line[2:], strict=True))
        total[key] = Traffic(*key, *sums)
    return tuple(total.values())


def once(absent: Sequence[Absence]) -> tuple[Absence, ...]:
    """One line for each client and exchange, with all its reasons."""
    reasons: dict[tuple[int, int], list[str]] = {}
    for exchange, client, reason in absent:
        reasons.setdefault((exchange, client), []).append(reason)
    return tuple(Absence(e, c, "; ".join(why)) for (e, c), why in reasons.items())
