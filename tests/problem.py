"""The public problem as our tests use it: bound methods, late and unequal clients."""

from __future__ import annotations

from collections.abc import Sequence

from tunefree.core import Algorithm, System
from tunefree.fleet.job import Done, Job, Key
from tunefree.fleet.states import States
from tunefree.schedule.delays import LAWS, Delays
from tunefree.settings import Dispatch, Opening, Schedule
from tunefree.testing import Problem, QuadraticOracle, Trace
from tunefree.testing import simulate as run


class UnequalOracle(QuadraticOracle):
    """Client i holds 5 + 7 i samples and makes two epochs in batches of 4."""

    def __init__(self, problem: Problem, job: Job) -> None:
        super().__init__(problem, job)
        self.n = 5 + 7 * job.client
        self.steps = own_steps(job.client)


def own_steps(client: int) -> int:
    """K_i of such a client, counted by hand."""
    return 2 * len(range(0, 5 + 7 * client, 4))


def unequal(sys: System) -> System:
    """The constants of such clients: K is the mean of their K_i."""
    return sys._replace(K=round(sum(map(own_steps, range(sys.N))) / sys.N))


class CountingStates(States):
    """The states of a fleet, and which replies were accepted."""

    def __init__(self, states: States) -> None:
        self.__dict__ |= states.__dict__
        self.accepted: list[Key] = []

    def accept(self, used: Sequence[tuple[Job, Done]]) -> None:
        self.accepted += [job.key for job, _ in used]
        super().accept(used)


def simulate(
    algo: Algorithm,
    problem: Problem,
    opening: Opening = "gradients",
    oracle: type[QuadraticOracle] = QuadraticOracle,
) -> Trace:
    return run(algo, problem, algo.sys, Schedule(opening=opening), oracle)


def simulate_buffered(
    algo: Algorithm,
    problem: Problem,
    concurrency: int,
    dispatch: Dispatch = "flush",
    delays: Delays = LAWS["mild"],
    dropout: float = 0.0,
    timeout: float | None = None,
    opening: Opening = "gradients",
    oracle: type[QuadraticOracle] = QuadraticOracle,
) -> Trace:
    """The same with clients that are late, and some that never answer."""
    late = Schedule(
        "buffered",
        concurrency,
        dispatch,
        dropout=dropout,
        timeout=0.0 if timeout is None else timeout,
        opening=opening,
    )
    return run(algo, problem, algo.sys, late, oracle, delays)
