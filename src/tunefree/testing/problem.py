"""Noisy quadratic clients with a known optimum, on which a method is compared with its page.

F(θ; ξ) = scale * (½ (θ - b_i)ᵀ A_i (θ - b_i) + θᵀξ), ξ ~ noise * N(0, I).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from tunefree.core import Generator, Method, Server, System, Vec, bind, mean, stream
from tunefree.fleet.job import Job
from tunefree.fleet.serial import Serial
from tunefree.schedule.delays import Delays
from tunefree.schedule.exchange import Step
from tunefree.schedule.simulate import simulate as play
from tunefree.settings import Schedule

Array: TypeAlias = NDArray[np.float64]


class Problem(NamedTuple):
    """All clients, in numpy, so that a naive twin needs nothing of the library.

    Attributes:
        A: One symmetric positive definite matrix a client: (N, d, d).
        b: The minimum of each client's own function: (N, d).
        noise: How much ξ varies.
        scale: The unit of the loss.
        seed: Of θ^0, of the clients that are sampled, and of their ξ.

    >>> problem = quadratic(N=3, noise=0.0)
    >>> bool(np.allclose(sum(problem.full_grad(i, problem.optimum) for i in range(3)), 0))
    True
    """

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
        """Where every run starts."""
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
        """The minimum of the mean of all clients' functions."""
        total = np.einsum("nij,nj->i", self.A, self.b)
        solution: Array = np.linalg.solve(self.A.sum(axis=0), total)
        return solution


def quadratic(
    N: int = 7, d: int = 5, noise: float = 0.3, spread: float = 3.0, scale: float = 1, seed: int = 0
) -> Problem:
    """Random clients.

    Args:
        N: Clients.
        d: Parameters.
        noise: How much mini-batches vary.
        spread: How far the clients' own minima are apart.
        scale: The unit of the loss.
        seed: The same seed gives the same clients.

    >>> quadratic(N=3, d=2).A.shape
    (3, 2, 2)
    """
    rng = stream(seed, "problem")
    root = rng.normal(size=(N, d, d)) / d**0.5
    A = root @ root.transpose(0, 2, 1) + 0.2 * np.eye(d)
    return Problem(A, spread * rng.normal(size=(N, d)), noise, scale, seed)


class QuadraticOracle:
    """The oracle of one client, in the precision of the model that it is asked about."""

    def __init__(self, problem: Problem, job: Job) -> None:
        self._problem, self._client = problem, job.client
        self.n, self.drawn = 1 + job.client, 0
        self.rng = problem.noises(job.client, job.t, job.exchange)

    def draw(self) -> Array:
        return self._problem.draw(self.rng)

    def grad(self, theta: Vec, xi: Array) -> Vec:
        self.drawn += 1
        grad = self._problem.grad(self._client, theta.double().numpy(), xi)
        return torch.from_numpy(grad).to(theta.dtype)

    def loss_and_grad(self, theta: Vec, xi: Array) -> tuple[Vec, Vec]:
        loss = self._problem.loss(self._client, theta.double().numpy(), xi)
        return torch.tensor(loss, dtype=theta.dtype), self.grad(theta, xi)

    def mean_grad(self, theta: Vec, K: int) -> Vec:
        return mean(self.grad(theta, self.draw()) for _ in range(K))

    def full_grad(self, theta: Vec) -> Vec:
        grad = self._problem.full_grad(self._client, theta.double().numpy())
        return torch.from_numpy(grad).to(theta.dtype)


class Trace(NamedTuple):
    """A whole run.

    Attributes:
        steps: The opening, then every round.
        fleet: Has the clients' states.

    >>> from tunefree.methods import FedAvg
    >>> trace = simulate(FedAvg(), quadratic(N=4), System(N=4, S=2, K=3, T=5))
    >>> len(trace.thetas), [len(clients) for clients in trace.cohorts]
    (6, [2, 2, 2, 2, 2])
    """

    steps: list[Step]
    fleet: Serial

    @property
    def server(self) -> Server:
        """Its state at the end."""
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
    method: Method,
    problem: Problem,
    sys: System,
    schedule: Schedule = Schedule(),
    oracle: type[QuadraticOracle] = QuadraticOracle,
    delays: Delays | None = None,
) -> Trace:
    """The run of a method on the problem, in float64.

    Args:
        method: Its value.
        problem: The clients.
        sys: N, S, K and T.
        schedule: Synchronous, or with clients that are late.
        oracle: A client of another kind.
        delays: How late they are, in place of the schedule's name.

    >>> from tunefree.methods import FedAvg
    >>> problem = quadratic(N=4, noise=0.0, spread=0.0)
    >>> end = simulate(FedAvg(eta=0.3), problem, System(N=4, S=4, K=3, T=60)).server.theta
    >>> bool(np.allclose(end, problem.optimum, atol=1e-3))
    True
    """
    algo = method if method.sys == sys else bind(method, sys, method.shapes)
    theta0 = torch.from_numpy(problem.theta0)
    fleet = Serial(algo, theta0, lambda job: oracle(problem, job))
    steps = play(algo, fleet, theta0, problem.seed, schedule, delays=delays)
    return Trace(list(steps), fleet)


def agree(ours: Sequence[Array], page: Sequence[Array], atol: float = 1e-12) -> None:
    """Assert that a run and its twin have the same models, to nine digits, and that they move.

    Args:
        ours: The models of a run, `Trace.thetas`.
        page: Those of the twin: a naive second implementation, written from the page.
        atol: How far numbers near zero may differ.

    >>> agree([np.ones(2), np.zeros(2)], [np.ones(2), np.full(2, 1e-13)])
    """
    assert len(ours) == len(page), f"{len(ours)} models, and {len(page)} of the page"
    assert not np.allclose(page[0], page[-1], rtol=1e-3), "nothing moves"
    np.testing.assert_allclose(np.array(ours), np.array(page), rtol=1e-9, atol=atol)
