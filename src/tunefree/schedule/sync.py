"""The synchronous loop: a new cohort every step, and the server waits for all of it."""

from __future__ import annotations

from collections.abc import Iterator

from tunefree.core import Vec
from tunefree.fleet.job import Fleet
from tunefree.schedule.clock import Clock
from tunefree.schedule.exchange import Release, Step, run_stage
from tunefree.schedule.membership import Membership
from tunefree.settings import Opening


def synchronous(
    fleet: Fleet,
    members: Membership,
    clock: Clock,
    theta0: Vec,
    opening: Opening = "gradients",
    after: Step | None = None,
    release: Release | None = None,
) -> Iterator[Step]:
    """Yield the opening as step -1, then the T server steps; or only those after a given one."""
    step = first_step(fleet, members, clock, theta0, opening, after)
    trips, T = len(members.algo.round()), members.algo.sys.T
    if after is None:
        yield step
    for t in range(step.t + 1, T):
        joining, clients = members.joining(step.server, t), members.cohort(t)
        given = members.algo, fleet, members.gauge, step.server
        step, joined = run_stage(*given, t, "round", clients, joining, release)
        step = members.admit(step, joined)
        step = step._replace(virtual_seconds=clock.wait_for(clients, trips))
        yield step


def first_step(
    fleet: Fleet,
    members: Membership,
    clock: Clock,
    theta0: Vec,
    opening: Opening,
    after: Step | None,
) -> Step:
    """The opening, run by all N clients unless it is skipped; or the step to resume after."""
    algo = members.algo
    everybody, trips = range(algo.sys.N), 0 if opening == "zero" else len(algo.opening())
    now = clock.wait_for(everybody, trips)
    if after is not None:
        clock.replay(after.t + 1, members.cohort, len(algo.round()))
        return after
    server = algo.server(theta0)
    if not trips:
        return Step(-1, server)
    step, _ = run_stage(algo, fleet, members.gauge, server, -1, "opening", everybody)
    return step._replace(virtual_seconds=now)
