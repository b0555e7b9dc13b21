"""Jobs distributed to workers of any kind: processes of a pool, actors of a cluster."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

from tunefree.core import Client
from tunefree.errors import FleetError
from tunefree.fleet.job import Done, Job, Key
from tunefree.fleet.states import States

# The results of jobs, an error message if one failed, or None if the worker has died.
Answer: TypeAlias = list[tuple[Client, Done]] | str | None

TRIES = 3  # a job that has killed so many workers is not tried again


class Workers(Protocol):
    """Workers that do jobs; a handle stands for jobs in progress."""

    def all(self) -> list[Any]: ...  # that can work now, at least one

    def share(self, jobs: int, idle: int) -> int: ...  # of the waiting jobs, for one idle worker

    def give(self, worker: Any, jobs: Sequence[tuple[Client, Job]]) -> Hashable: ...

    def wait(self, handles: Sequence[Any]) -> Iterable[Any]: ...  # those answered, at least one

    def answer(self, worker: Any, handle: Any) -> Answer: ...

    def replace(self, dead: Any) -> Any: ...  # None if the new one is not ready yet


def distribute(
    workers: Workers, jobs: Sequence[Job], states: States, names: Sequence[str] = ()
) -> list[Done]:
    """Run all jobs; a worker that dies is replaced and its jobs are run again."""
    waiting, idle = deque(jobs), workers.all()
    busy: dict[Hashable, tuple[Any, list[Job]]] = {}
    done: dict[Key, Done] = {}
    deaths, failure = Counter[Key](), ""
    while busy or (waiting and not failure):
        idle = idle if idle or busy else workers.all()
        while waiting and idle and not failure:
            few = next_jobs(waiting, deaths, workers.share(len(waiting), len(idle)))
            worker = idle.pop()
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
                    who = names[few[0].client] if names else few[0].client
                    failure = failure or (
                        f"client {who} killed {TRIES} worker processes in {few[0]}, "
                        "perhaps out of memory; use fewer workers or a smaller model"
                    )
            elif isinstance(answer, str):
                failure = failure or answer
            else:
                for state, reply in answer:
                    done[reply.key] = reply
                    states.propose(reply.key, state)
            if worker is not None:
                idle.append(worker)
    if failure:
        raise FleetError(failure)
    return [done[job.key] for job in jobs]


def next_jobs(waiting: deque[Job], deaths: Counter[Key], count: int) -> list[Job]:
    """So many jobs for a worker; one that killed a worker goes alone."""
    few = [waiting.popleft()]
    while len(few) < count and not deaths[few[0].key] and not deaths[waiting[0].key]:
        few.append(waiting.popleft())
    return few
