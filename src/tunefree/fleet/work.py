"""Doing one job, in any process: the same code, the same bits."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass

from tunefree.core import Algorithm, Client, Oracle, stream, with_system
from tunefree.data.samples import Partition, Samples
from tunefree.errors import FleetError
from tunefree.fleet.attack import Attack
from tunefree.fleet.job import Done, Job, exchanges
from tunefree.models.objective import Objective
from tunefree.models.oracle import DataOracle
from tunefree.models.own import Kept, first_state

MAP_THRESHOLD, TRIM_THRESHOLD = (-3, 2**25), (-1, 2**31 - 1)  # glibc's numbers, largest values


@dataclass(frozen=True)
class DataClients:
    """Makes the oracle of a job: its client's samples, and a stream named by the job."""

    objective: Objective
    samples: Samples
    parts: Partition
    batch_size: int
    seed: int
    epochs: int = 0  # of local work per round; 0 means the algorithm's K steps
    attack: Attack | None = None  # what some clients send in place of an honest upload
    accumulate: int = 1  # mini-batches of a local step
    clip: float = 0.0  # the largest norm of its gradient; 0 is no limit
    names: tuple[str, ...] = ()  # of the clients, if they have any

    def __call__(self, job: Job) -> DataOracle:
        rng = stream(self.seed, "client", *job.key)
        part = self.parts[job.client]
        given = self.objective, self.samples, part, self.batch_size, rng, self.epochs
        return DataOracle(*given, self.accumulate, self.clip)

    def first_state(self, algo: Algorithm) -> Client:
        """The state that a client starts with."""
        return first_state(algo, self.objective.theta0, self.objective.own)


def do(
    algo: Algorithm, oracle_of: Callable[[Job], Oracle], state: Client, job: Job
) -> tuple[Client, Done]:
    """The client's new state and its reply."""
    oracle = oracle_of(job)
    K = getattr(oracle, "steps", 0) or algo.sys.K
    kept, own = state, getattr(oracle, "own", None)
    if own is not None:
        own.put(kept.own, kept.jobs, K)
        state = kept.method
    exchange = exchanges(of_client(algo, K), job.stage, job.t)[job.exchange]
    down = job.down if algo.sys.K == K else algo.for_steps(job.down, K)
    try:
        state, up = exchange.work(state, down, oracle)
    except Exception as error:
        names = getattr(oracle_of, "names", ())
        who = names[job.client] if names else job.client
        raise FleetError(f"client {who} failed in {job}: {error}") from error
    if own is not None:
        state = Kept(state, own.taken(), kept.jobs + 1)
    if attack := getattr(oracle_of, "attack", None):
        up = attack(job, up)
    return state, Done(job.key, up, oracle.n, getattr(oracle, "drawn", 0))


def of_client(algo: Algorithm, K: int) -> Algorithm:
    """The algorithm of a client that makes K local steps; its step sizes stay the server's."""
    return algo if algo.sys.K == K else with_system(algo, algo.sys._replace(K=K))


def keep_memory() -> None:
    """Tell glibc not to return memory between steps: getting it again takes half the time."""
    if sys.platform == "linux":
        try:
            mallopt = ctypes.CDLL("libc.so.6").mallopt
        except (OSError, AttributeError):
            return
        for setting in (MAP_THRESHOLD, TRIM_THRESHOLD):
            mallopt(*setting)
