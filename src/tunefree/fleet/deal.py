"""Jobs dealt out to workers of any kind: processes of a pool, actors of a cluster."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

from tunefree.core import Client
from tunefree.errors import FleetError
from tunefree.fleet.job import Done, Job, Key
from tunefree.fleet.states import States

# What jobs gave, a sentence if one failed, or nothing if the worker has died.
Answer: TypeAlias = list[tuple[Client, Done]] | str | None

AT_ONCE = 4  # jobs handed to a worker in one go, at most: each go costs a pipe and a pickle
TRIES = 3  # a job that has ended so many workers is not tried again


class Workers(Protocol):
    """Those who do jobs; a handle stands for jobs that are being done."""

    def all(self) -> list[Any]: ...

    def give(self, worker: Any, jobs: Sequence[tuple[Client, Job]]) -> Hashable: ...

    def wait(self, handles: Sequence[Any]) -> Iterable[Any]: ...  # those answered, one at least

    def answer(self, worker: Any, handle: Any) -> Answer: ...

    def replace(self, dead: Any) -> Any: ...


def deal_out(workers: Workers, jobs: Sequence[Job], states: States) -> list[Done]:
    """Have all jobs done; a worker that dies is replaced and its jobs are done again."""
    waiting, idle = deque(jobs), workers.all()
    count = len(idle)
    busy: dict[Hashable, tuple[Any, list[Job]]] = {}
    done: dict[Key, Done] = {}
    deaths, failure = Counter[Key](), ""
    while busy or (waiting and not failure):
        while waiting and idle and not failure:
            worker, few = idle.pop(), next_jobs(waiting, deaths, count)
            handle = workers.give(worker, [(states[job.client], job) for job in few])
            busy[handle] = worker, few
        for handle in workers.wait(list(busy)):
            worker, few = busy.pop(handle)
            answer = workers.answer(worker, handle)
            if answer is None:
                worker = workers.replace(worker)
                waiting.extendleft(reversed(few))
                deaths.update(job.key for job in few)
                if deaths[few[0].key] == TRIES:
                    failure = failure or deadly(few[0])
            elif isinstance(answer, str):
                failure = failure or answer
            else:
                for state, reply in answer:
                    done[reply.key] = reply
                    states.propose(reply.key, state)
            idle.append(worker)
    if failure:
        raise FleetError(failure)
    return [done[job.key] for job in jobs]


def next_jobs(waiting: deque[Job], deaths: Counter[Key], workers: int) -> list[Job]:
    """A few jobs for a worker: fewer towards the end, and one alone that a worker died at."""
    count = min(AT_ONCE, -(-len(waiting) // (2 * workers)))
    few = [waiting.popleft()]
    while len(few) < count and not deaths[few[0].key] and not deaths[waiting[0].key]:
        few.append(waiting.popleft())
    return few


def deadly(job: Job) -> str:
    return (
        f"client {job.client} ended {TRIES} worker processes in {job}, perhaps for lack of memory; "
        "use fewer workers or a smaller model"
    )
