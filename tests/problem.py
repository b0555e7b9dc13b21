"""Noisy quadratic clients in float64 with known optimum, for page twins and identities alike.

F(θ; ξ) = scale * (½ (θ - b_i)ᵀ A_i (θ - b_i) + θᵀξ), ξ ~ noise * N(0, I).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tunefree.core import Algorithm, Generator, Server, System, Vec, mean, stream
from tunefree.fleet.job import Done, Job, Key
from tunefree.fleet.serial import Serial
from tunefree.fleet.states import States
from tunefree.schedule.delays import LAWS, Delays
from tunefree.schedule.exchange import Step
from tunefree.schedule.simulate import simulate as play
from tunefree.settings import Dispatch, Opening, Schedule

Array = NDArray[np.float64]


class Problem(NamedTuple):
    """Everything in numpy, so that a naive twin needs nothing of the library."""

    A: Array  # (N, d, d), symmetric positive definite
    b: Array  # (N, d)
    noise: float
    scale: float
    seed: int

    @property
    def d(self) -> int:
        return int(self.b.shape[1])

    @property
    def theta0(self) -> Array:
        return stream(self.seed, "theta0").normal(size=self.d)

    def noises(self, client: int, t: int, exchange: int = 0) -> Generator:
        """The stream from which client draws in this job; t = -1 is the opening."""
        return stream(self.seed, "client", client, t + 1, exchange)

    def draw(self, rng: Generator) -> Array:
        """One ξ."""
        return self.noise * rng.normal(size=self.d)

    def loss(self, client: int, theta: Array, xi: Array) -> float:
        r = theta - self.b[client]
        return float(self.scale * (0.5 * r @ self.A[client] @ r + theta @ xi))

    def grad(self, client: int, theta: Array, xi: Array) -> Array:
        g: Array = self.scale * (self.A[client] @ (theta - self.b[client]) + xi)
        return g

    def full_grad(self, client: int, theta: Array) -> Array:
        return self.grad(client, theta, np.zeros(self.d))

    @property
    def optimum(self) -> Array:
        total = np.einsum("nij,nj->i", self.A, self.b)
        solution: Array = np.linalg.solve(self.A.sum(axis=0), total)
        return solution


def quadratic(
    N: int = 7, d: int = 5, noise: float = 0.3, spread: float = 3.0, scale: float = 1, seed: int = 0
) -> Problem:
    rng = stream(seed, "problem")
    root = rng.normal(size=(N, d, d)) / d**0.5
    A = root @ root.transpose(0, 2, 1) + 0.2 * np.eye(d)
    return Problem(A, spread * rng.normal(size=(N, d)), noise, scale, seed)


class QuadraticOracle:
    """The problem's client as an oracle on float64 tensors."""

    n = 1

    def __init__(self, problem: Problem, job: Job) -> None:
        self._problem, self._client = problem, job.client
        self.rng = problem.noises(job.client, job.t, job.exchange)
        self.drawn = 0

    def draw(self) -> Array:
        return self._problem.draw(self.rng)

    def grad(self, theta: Vec, xi: Array) -> Vec:
        self.drawn += 1
        return torch.from_numpy(self._problem.grad(self._client, theta.numpy(), xi))

    def loss_and_grad(self, theta: Vec, xi: Array) -> tuple[Vec, Vec]:
        loss = self._problem.loss(self._client, theta.numpy(), xi)
        return torch.tensor(loss, dtype=theta.dtype), self.grad(theta, xi)

    def mean_grad(self, theta: Vec, K: int) -> Vec:
        return mean(self.grad(theta, self.draw()) for _ in range(K))

    def full_grad(self, theta: Vec) -> Vec:
        return torch.from_numpy(self._problem.full_grad(self._client, theta.numpy()))


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


class Trace(NamedTuple):
    """A whole run: every step, and the fleet with the clients' states."""

    steps: list[Step]
    fleet: Serial

    @property
    def server(self) -> Server:
        return self.steps[-1].server

    @property
    def thetas(self) -> list[Array]:
        """θ^0, θ^1, ..., θ^T."""
        return [step.server.theta.numpy() for step in self.steps]

    @property
    def cohorts(self) -> list[Sequence[int]]:
        """S_0, ..., S_{T-1}, for a twin to follow."""
        return [step.clients for step in self.steps if step.t >= 0]

    @property
    def uploads(self) -> list[list[tuple[int, int]]]:
        """The same with the step of each client's download, for a twin to replay."""
        return [
            [(i, step.t - tau) for i, tau in zip(step.clients, step.staleness, strict=True)]
            for step in self.steps
            if step.t >= 0
        ]


def simulate(
    algo: Algorithm,
    problem: Problem,
    opening: Opening = "gradients",
    oracle: type[QuadraticOracle] = QuadraticOracle,
) -> Trace:
    """The library's own run of an algorithm on the problem."""
    theta0 = torch.from_numpy(problem.theta0)
    fleet = Serial(algo, theta0, lambda job: oracle(problem, job))
    steps = play(algo, fleet, theta0, problem.seed, Schedule(opening=opening))
    return Trace(list(steps), fleet)


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
    theta0 = torch.from_numpy(problem.theta0)
    fleet = Serial(algo, theta0, lambda job: oracle(problem, job))
    late = Schedule(
        "buffered",
        concurrency,
        dispatch,
        dropout=dropout,
        timeout=0.0 if timeout is None else timeout,
        opening=opening,
    )
    steps = play(algo, fleet, theta0, problem.seed, late, delays=delays)
    return Trace(list(steps), fleet)
