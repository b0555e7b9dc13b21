"""A small problem, and ways to play an algorithm on it that show every call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch

from tunefree.config import Opening, Schedule
from tunefree.core import Algorithm, Exchange, Message, Oracle, System, Vec, mean, stream
from tunefree.errors import WireError
from tunefree.fleet.job import Fleet, Job
from tunefree.fleet.serial import Serial
from tunefree.schedule.exchange import Step
from tunefree.schedule.simulate import simulate
from tunefree.wire import Compressed

D, ROUNDS, SEED = 6, 3, 0


class Quadratic:
    """The oracle of F(θ; ξ) = ½ Σ a (θ - b_i - ξ)^2, in the precision it is asked in."""

    def __init__(self, job: Job) -> None:
        self.n, self.drawn = 1 + job.client, 0
        self.rng = stream(SEED, "client", *job.key)
        self._b = stream(SEED, "b", job.client).normal(size=D)

    def draw(self) -> Vec:
        self.drawn += 1
        return torch.from_numpy(0.3 * self.rng.normal(size=D))

    def loss_and_grad(self, theta: Vec, xi: Vec) -> tuple[Vec, Vec]:
        a, r = torch.linspace(0.2, 1.2, D), theta - (torch.from_numpy(self._b) + xi).to(theta)
        a = a.to(theta)
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


@dataclass(frozen=True)
class Watched:
    """An algorithm whose functions are called by `call(role, function, *given)`.

    It is looked up anew for every exchange, so it may be another copy each time.
    """

    algo: Callable[[], Algorithm]
    call: Callable[..., Any]

    @property
    def sys(self) -> System:
        return self.algo().sys

    def server(self, theta0: Vec) -> Any:
        return self.call("server", self.algo().server, theta0)

    def client(self, theta0: Vec) -> Any:
        return self.call("client", self.algo().client, theta0)

    def opening(self) -> tuple[Exchange, ...]:
        return tuple(map(self._watched, self.algo().opening()))

    def round(self) -> tuple[Exchange, ...]:
        return tuple(map(self._watched, self.algo().round()))

    def _watched(self, exchange: Exchange) -> Exchange:
        Down, Up, *functions = exchange
        roles = ("down", "work", "up")
        down, work, up = map(partial, [self.call] * 3, roles, functions)
        return Exchange(Down, Up, down, work, up)


def start(dtype: torch.dtype) -> Vec:
    return torch.from_numpy(stream(SEED, "theta0").normal(size=D)).to(dtype)


def play(
    algo: Algorithm,
    dtype: torch.dtype = torch.float32,
    fleet_of: Callable[..., Fleet] = Serial,
    oracle_of: Callable[[Job], Oracle] = Quadratic,
    opening: Opening = "gradients",
) -> list[Step]:
    """The opening and the first rounds; every reply must be usable."""
    theta0 = start(dtype)
    fleet = fleet_of(algo, theta0, oracle_of)
    try:
        steps = list(islice(simulate(algo, fleet, theta0, SEED, Schedule(opening=opening)), 1 + ROUNDS))
    finally:
        fleet.close()
    for step in steps:
        for _, client, reason in step.absent:
            raise WireError(f"client {client} at t = {step.t}: {reason}")
    return steps


def watch(algo: Algorithm, see: Callable[..., str], **setting: Any) -> Iterator[str]:
    """Play, and give what `see(role, function, result, *given)` says of each call."""
    said: list[str] = []

    def call(role: str, function: Callable[..., Any], *given: Any) -> Any:
        result = function(*given)
        said.append(see(role, function, result, *given))
        return result

    try:
        play(Watched(lambda: algo, call), **setting)
    except Exception:
        if not any(said):  # otherwise the reason has been said
            raise
    return filter(None, said)


def content(value: Any) -> Any:
    """Everything in a value down to the bytes of its vectors; what is no data is left out."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.detach().cpu().numpy().tobytes()
    if isinstance(value, Compressed):
        return value.bits, value.to_bytes(), content(value.dense())
    if isinstance(value, Mapping):
        return {key: content(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return type(value).__name__, [content(part) for part in value]
    return value if isinstance(value, int | float | str) else None


def different(ours: Sequence[Step], theirs: Sequence[Step]) -> bool:
    return any(content(a.server) != content(b.server) for a, b in zip(ours, theirs, strict=True))


def vectors(value: Any) -> list[Vec]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Compressed):
        return [value.dense()]
    return [v for part in value for v in vectors(part)] if isinstance(value, tuple | list) else []


def is_state(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def sent(role: str, result: Any) -> Message | None:
    """The message among what a function of that role gives, if it sends one."""
    if role == "work":
        return result[1]
    return result if role == "down" else None


def kept(role: str, result: Any) -> Any:
    """The state among what a function of that role gives, if it gives one to keep."""
    if role == "work":
        return result[0]
    return result if role == "up" else None
