"""The buffered loop: clients work on the model they were given, and the server takes a step
whenever S uploads have arrived, however old their models are.

The clock decides which uploads these are and which clients get a model. Downloads count in the step
whose model they carry, so the first step has as many of them as there are jobs in flight.
"""

from __future__ import annotations

from collections.abc import Iterator

from tunefree.core import Vec
from tunefree.fleet.job import Fleet, exchanges
from tunefree.schedule.clock import BufferClock
from tunefree.schedule.exchange import Release, Step, sent, use
from tunefree.schedule.membership import Membership
from tunefree.schedule.sync import first_step
from tunefree.settings import Opening


def buffered(
    fleet: Fleet,
    members: Membership,
    clock: BufferClock,
    theta0: Vec,
    opening: Opening = "gradients",
    after: Step | None = None,
    release: Release | None = None,
) -> Iterator[Step]:
    """Yield the opening as step -1, then the T server steps; or only those after a given one."""
    step = first_step(fleet, members, clock, theta0, opening, after)
    if after is None:
        yield step
    server, downs = step.server, dict(step.in_flight)
    for t in range(step.t + 1, members.algo.sys.T):
        algo = members.algo
        (exchange,) = exchanges(algo, "round", t)
        downs[t] = down = exchange.down(server)
        buffer = clock.fill(t, downs, members.joining(server, t))
        used = use(
            algo, exchange, fleet, members.gauge, server, t, buffer.jobs, buffer.done, release
        )
        downs = {then: down for then, down in downs.items() if then in buffer.awaited}
        step = Step(
            t,
            used.server,
            clients=[reply.client for reply in used.replies],
            traffic=(sent(0, "down", [down] * buffer.downloads), used.traffic),
            samples=used.samples,
            virtual_seconds=buffer.time,
            staleness=tuple(reply.tau for reply in used.replies),
            absent=(*buffer.absent, *used.absent),
            in_flight=downs,
        )
        step = members.admit(step, buffer.joined)
        server = step.server
        yield step
