"""A run driven call by call, without schedule or fleet, so that a test may inspect or interfere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from tunefree.core import Algorithm, Client, Oracle, Reply, Server, Vec
from tunefree.fleet.job import Job, Stage, exchanges
from tunefree.schedule.membership import cohort
from tunefree.testing import Array, Problem, QuadraticOracle

Call = Callable[..., Any]  # call(function, *given) -> result
Accept = Callable[[int, list[Reply]], list[Reply]]  # what reaches the server at step t


class Moment(NamedTuple):
    """The server and all N clients after step t."""

    t: int
    server: Server
    clients: list[Client]


class CastOracle(QuadraticOracle):
    """Gradients in the precision of the model they are taken at."""

    def grad(self, theta: Vec, xi: Array) -> Vec:
        return super().grad(theta.double(), xi).to(theta.dtype)

    def loss_and_grad(self, theta: Vec, xi: Array) -> tuple[Vec, Vec]:
        loss, _ = super().loss_and_grad(theta.double(), xi)
        return loss.to(theta.dtype), self.grad(theta, xi)

    def full_grad(self, theta: Vec) -> Vec:
        return super().full_grad(theta.double()).to(theta.dtype)


def plainly(function: Call, *given: Any) -> Any:
    return function(*given)


def everything(t: int, replies: list[Reply]) -> list[Reply]:
    return replies


def by_hand(
    algo: Algorithm,
    problem: Problem,
    *,
    dtype: torch.dtype = torch.float64,
    call: Call = plainly,
    accept: Accept = everything,
    oracle: Callable[[Problem, Job], Oracle] = CastOracle,
) -> Iterator[Moment]:
    """Yield the opening as t = -1, then the T steps; only accepted clients get their new state."""
    theta0 = torch.from_numpy(problem.theta0).to(dtype)
    server = call(algo.server, theta0)
    clients = [call(algo.client, theta0) for _ in range(algo.sys.N)]
    for t in range(-1, algo.sys.T):
        stage: Stage = "opening" if t < 0 else "round"
        present: Sequence[int] = range(algo.sys.N) if t < 0 else cohort(problem.seed, t, algo.sys)
        for number, exchange in enumerate(exchanges(algo, stage, t)):
            down = call(exchange.down, server)
            replies, pending = [], {}
            for i in present:
                F = oracle(problem, Job(i, t, stage, number, down))
                pending[i], up = call(exchange.work, clients[i], down, F)
                replies.append(Reply(i, F.n, 0, up))
            accepted = accept(t, replies)
            server = call(exchange.up, server, accepted)
            for reply in accepted:
                clients[reply.client] = pending[reply.client]
        yield Moment(t, server, list(clients))
