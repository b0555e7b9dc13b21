"""What a method costs, measured on a small run, and its `about`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from tunefree.core import (
    UNBOUND,
    About,
    Generator,
    Method,
    System,
    Vec,
    about,
    bind,
    options,
    stream,
    unwrapped,
    with_system,
)
from tunefree.errors import ConfigError
from tunefree.fleet.serial import Serial
from tunefree.methods.registry import build, every_name, is_ours
from tunefree.schedule.exchange import Step, run_stage
from tunefree.schedule.gauge import Gauge
from tunefree.testing.observe import Flat
from tunefree.wire import Compressed, Compressor, bits
from tunefree.wire.compressed import Whole
from tunefree.wire.compressors import AnyOf, PerTensor
from tunefree.wire.message import field_bits

D = 1000
LARGE = 100_000  # parameters, above which running a step would take too long
TOY = System(N=2, S=1, K=1, T=4)


class Cost(NamedTuple):
    """In vectors of length d, per client.

    Attributes:
        down: What it receives each round.
        up: What it sends each round.
        opening_down: What it receives before the first.
        opening_up: What it sends before the first.
        memory: What it stores between rounds.

    >>> from tunefree.methods import PolarFL
    >>> cost(PolarFL()).memory
    1.001
    """

    down: float
    up: float
    opening_down: float
    opening_up: float
    memory: float


class Entry(NamedTuple):
    """One line of `tunefree methods`."""

    name: str
    about: About
    cost: Cost
    package: str


def cost(method: Method, d: int = D) -> Cost:
    """What the method really sends to and from one client, and what that client stores.

    For a large model, one of ours is run on a few short vectors: bits are linear in d.

    Args:
        method: Its value; one that is bound to few of many clients may send other messages.
        d: Parameters of the model.

    >>> from tunefree.methods import Scaffold
    >>> cost(Scaffold())
    Cost(down=2.0, up=2.0, opening_down=0.0, opening_up=0.0, memory=1.0)
    """
    algo = unwrapped(bind(method, TOY) if method.sys == UNBOUND else method)
    algo = with_system(algo, algo.sys._replace(K=1))  # messages do not depend on K
    counted = scaled(algo, d) if is_ours(algo) and d >= LARGE else measured(algo, d)
    return Cost(*(bits / 32 / d for bits in counted))


def measured(algo: Method, d: int) -> list[int]:
    """The bits of each entry of `Cost`, counted from the messages of a step."""
    theta0 = torch.zeros(d)
    fleet = Serial(algo, theta0, Flat)
    server = algo.server(theta0)
    opening, _ = run_stage(algo, fleet, Gauge(), server, -1, "opening", [0])
    step, _ = run_stage(algo, fleet, Gauge(), server, 0, "round", [0])
    return [*sent(step), *sent(opening), bits(fleet.states[0])]


def sent(step: Step) -> tuple[int, int]:
    """Bits (down, up) that the one client of a step received and sent."""
    totals = {"down": 0, "up": 0}
    for line in step.traffic:
        totals[line.direction] += line.bits
    return totals["down"], totals["up"]


def scaled(algo: Method, d: int) -> list[int]:
    """The same without a vector of length d, except for one call of its compressor."""
    C = options(algo).get("C")
    if isinstance(C, PerTensor):
        algo = with_compressor(
            algo, Weighed(C.rule, weight=C(torch.zeros(d), stream(0, "cost")).bits)
        )
    shapes = algo.shapes or [(1,)]
    if not any(shapes):
        return measured(algo, d)
    least = len(shapes)
    one, two, four = (measured(lengthened(algo, more), least + more) for more in (1, 2, 4))
    if any(c - b != 2 * (b - a) for a, b, c in zip(one, two, four, strict=True)):
        return measured(algo, d)  # bits that are not linear in d
    return [a + (b - a) * (d - least - 1) for a, b in zip(one, two, strict=True)]


def lengthened(algo: Method, more: int) -> Method:
    """The algorithm for a model with as many tensors, all of one element but one with `more`."""
    if algo.shapes is None:
        return algo
    short = [(1,) * len(shape) for shape in algo.shapes]
    place = next(i for i, shape in enumerate(short) if shape)
    short[place] = (1 + more, *short[place][1:])
    return replace(algo, shapes=tuple(short))


@dataclass(frozen=True)
class Weighed(PerTensor):
    """A compressor whose messages have the size they would have for the large model."""

    weight: int = 0  # bits

    def __call__(self, v: Vec, rng: Generator) -> Compressed:
        return Compressed((Stand(v, self.weight - field_bits(v)),))


@dataclass(frozen=True, eq=False)
class Stand(Whole):
    """A short vector in place of a long one, with the same number of bits."""

    extra: int = 0  # type: ignore[misc]


def costs(algo: Method, d: int) -> list[Cost]:
    """The cost with each possible compressor; usually there is one."""
    algo = unwrapped(algo)
    C = options(algo).get("C")
    if not isinstance(C, AnyOf):
        return [cost(algo, d)]
    return [cost(with_compressor(algo, choice), d) for choice in C.choices]


def with_compressor(algo: Method, C: Compressor) -> Method:
    known: dict[str, Any] = {"C": C}
    return replace(algo, **known)


def entries() -> Iterator[Entry | ConfigError]:
    """All methods, ours and those of installed packages, or why one cannot be had."""
    for name, package in every_name().items():
        try:
            method = build(name, TOY)
        except ConfigError as error:
            yield error
        else:
            yield Entry(name, about(method), cost(method), package)
