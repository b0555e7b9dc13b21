"""Ways to run a method on the problem and observe every call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, ClassVar, NamedTuple

import torch

from tunefree.core import Exchange, Message, Method, Oracle, Vec, Wrapper
from tunefree.errors import WireError
from tunefree.fleet.job import Fleet, Job
from tunefree.fleet.serial import Serial
from tunefree.schedule.exchange import Step
from tunefree.schedule.simulate import simulate
from tunefree.settings import Opening, Schedule
from tunefree.testing.problem import QuadraticOracle, quadratic
from tunefree.wire import Compressed

PROBLEM, ROUNDS = quadratic(N=6, noise=0.3, spread=1.0), 3
QUADRATIC = partial(QuadraticOracle, PROBLEM)


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
        return tuple(map(self.played, self._one.opening()))

    def round(self) -> tuple[Exchange, ...]:
        return tuple(map(self.played, self._one.round()))

    @property
    def _one(self) -> Method:
        return deepcopy(self.inner) if self.renew else self.inner

    def played(self, exchange: Exchange) -> Exchange:
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


class Flat(QuadraticOracle):
    """The oracle of F = 1, for a vector of any length."""

    def __init__(self, job: Job) -> None:
        super().__init__(PROBLEM, job)

    def loss_and_grad(self, theta: Vec, xi: Any) -> tuple[Vec, Vec]:
        return 1 + 0 * theta[0], 0 * theta

    def grad(self, theta: Vec, xi: Any) -> Vec:
        return 0 * theta

    def full_grad(self, theta: Vec) -> Vec:
        return 0 * theta


def initial_model(dtype: torch.dtype) -> Vec:
    return torch.from_numpy(PROBLEM.theta0).to(dtype)


def run_problem(
    algo: Method,
    dtype: torch.dtype = torch.float32,
    fleet_of: Callable[..., Fleet] = Serial,
    oracle_of: Callable[[Job], Oracle] = QUADRATIC,
    opening: Opening = "gradients",
) -> list[Step]:
    """The opening and the first rounds; every reply must be usable."""
    theta0 = initial_model(dtype)
    fleet = fleet_of(algo, theta0, oracle_of)
    try:
        run = simulate(algo, fleet, theta0, PROBLEM.seed, Schedule(opening=opening))
        steps = list(islice(run, 1 + ROUNDS))
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
