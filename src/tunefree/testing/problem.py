"""A small problem, and ways to run an algorithm on it and inspect every call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import Any, ClassVar, NamedTuple

import torch

from tunefree.core import Exchange, Message, Method, Oracle, Vec, Wrapper, mean, stream
from tunefree.errors import WireError
from tunefree.fleet.job import Fleet, Job
from tunefree.fleet.serial import Serial
from tunefree.schedule.exchange import Step
from tunefree.schedule.simulate import simulate
from tunefree.settings import Opening, Schedule
from tunefree.wire import Compressed

D, ROUNDS, SEED = 5, 3, 0
CURVATURE = torch.linspace(0.2, 1.2, D)
THETA0 = torch.from_numpy(stream(SEED, "theta0").normal(size=D))


@cache
def optimum(client: int) -> Vec:
    """The minimum of the client's own function."""
    return torch.from_numpy(stream(SEED, "b", client).normal(size=D))


class Quadratic:
    """The oracle of F(θ; ξ) = ½ Σ a (θ - b_i - ξ)^2, in the precision of theta."""

    def __init__(self, job: Job) -> None:
        self.n, self.drawn = 1 + job.client, 0
        self.rng = stream(SEED, "client", *job.key)
        self._b = optimum(job.client)

    def draw(self) -> Vec:
        self.drawn += 1
        return torch.from_numpy(0.3 * self.rng.normal(size=D))

    def loss_and_grad(self, theta: Vec, xi: Vec) -> tuple[Vec, Vec]:
        a, r = CURVATURE.to(theta), theta - (self._b + xi).to(theta)
        return 0.5 * (a * r * r).sum(), a * r

    def grad(self, theta: Vec, xi: Vec) -> Vec:
        return self.loss_and_grad(theta, xi)[1]

    def mean_grad(self, theta: Vec, K: int) -> Vec:
        return mean(self.grad(theta, self.draw()) for _ in range(K))

    def full_grad(self, theta: Vec) -> Vec:
        return self.grad(theta, torch.zeros(D, dtype=torch.float64))


class Flat(Quadratic):
    """The oracle of F = 1."""

    def loss_and_grad(self, theta: Vec, xi: Vec) -> tuple[Vec, Vec]:
        return 1 + 0 * theta[0], 0 * theta


class Part(NamedTuple):
    """One function of an algorithm, and the kind of message that its exchange declares for it."""

    role: str  # server, client, down, work or up
    function: Callable[..., Any]
    message: type[Message] | None = None


@dataclass(frozen=True)
class Interceptor(Wrapper):
    """A method whose functions are called by `call(part, *given)`."""

    call: Callable[..., Any]
    renew: bool = False  # whether every exchange is another copy's

    words: ClassVar[str] = "observed"

    def server(self, theta0: Vec) -> Any:
        return self.call(Part("server", self._one.server), theta0)

    def client(self, theta0: Vec) -> Any:
        return self.call(Part("client", self._one.client), theta0)

    def opening(self) -> tuple[Exchange, ...]:
        return tuple(map(self._intercept, self._one.opening()))

    def round(self) -> tuple[Exchange, ...]:
        return tuple(map(self._intercept, self._one.round()))

    @property
    def _one(self) -> Method:
        return deepcopy(self.inner) if self.renew else self.inner

    def _intercept(self, exchange: Exchange) -> Exchange:
        Down, Up, down, work, up = exchange
        return Exchange(
            Down,
            Up,
            partial(self.call, Part("down", down, Down)),
            partial(self.call, Part("work", work, Up)),
            partial(self.call, Part("up", up)),
        )


def intercepted(algo: Method, call: Callable[..., Any], renew: bool = False) -> Interceptor:
    return Interceptor(algo, call, renew, sys=algo.sys)


def initial_model(dtype: torch.dtype) -> Vec:
    return THETA0.to(dtype, copy=True)


def run_problem(
    algo: Method,
    dtype: torch.dtype = torch.float32,
    fleet_of: Callable[..., Fleet] = Serial,
    oracle_of: Callable[[Job], Oracle] = Quadratic,
    opening: Opening = "gradients",
) -> list[Step]:
    """The opening and the first rounds; every reply must be usable."""
    theta0 = initial_model(dtype)
    fleet = fleet_of(algo, theta0, oracle_of)
    try:
        steps = list(
            islice(simulate(algo, fleet, theta0, SEED, Schedule(opening=opening)), 1 + ROUNDS)
        )
    finally:
        fleet.close()
    for step in steps:
        for _, client, reason in step.absent:
            raise WireError(f"client {client} at t = {step.t}: {reason}")
    return steps


def inspect_calls(algo: Method, complain: Callable[..., str], **setting: Any) -> Iterator[str]:
    """Run, and yield what `complain(part, result, *given)` returns for each call."""
    complaints: list[str] = []

    def call(part: Part, *given: Any) -> Any:
        result = part.function(*given)
        complaints.append(complain(part, result, *given))
        return result

    try:
        run_problem(intercepted(algo, call), **setting)
    except Exception:
        if not any(complaints):  # otherwise these are the reason
            raise
    return filter(None, complaints)


def content(value: Any) -> Any:
    """Everything in a value down to the bytes of its vectors; skips what is not data."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.detach().cpu().numpy().tobytes()
    if isinstance(value, Compressed):
        return value.bits, value.to_bytes(), content(value.dense())
    if isinstance(value, Mapping):
        return {key: content(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return type(value).__name__, [content(part) for part in value]
    return value if isinstance(value, int | float | str) else None


def differ(ours: Sequence[Step], theirs: Sequence[Step]) -> bool:
    return any(content(a.server) != content(b.server) for a, b in zip(ours, theirs, strict=True))


def vectors(value: Any) -> list[Vec]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Compressed):
        return [value.dense()]
    return [v for part in value for v in vectors(part)] if isinstance(value, tuple | list) else []


def is_namedtuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def message_in(part: Part, result: Any) -> Message | None:
    """The message in what a function returns, if there is one."""
    if part.role == "work":
        return result[1]
    return result if part.role == "down" else None


def state_in(part: Part, result: Any) -> Any:
    """The new state in what a function returns, if there is one."""
    if part.role == "work":
        return result[0]
    return result if part.role == "up" else None
