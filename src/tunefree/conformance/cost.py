"""What each registered algorithm costs, measured by playing it on a probe, and what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch

from tunefree.algorithms import REGISTRY, build
from tunefree.conformance.problem import Flat
from tunefree.core import About, Algorithm, System, with_system
from tunefree.fleet.serial import Serial
from tunefree.schedule.exchange import Step, play_stage
from tunefree.wire import bits
from tunefree.wire.compressors import AnyOf

D = 1000
TOY = System(N=2, S=1, K=1, T=4)


class Cost(NamedTuple):
    """In vectors of length d, per client: each round down and up, the opening, and its memory."""

    down: float
    up: float
    opening_down: float
    opening_up: float
    memory: float


class Entry(NamedTuple):
    """One line of `tunefree algorithms`."""

    name: str
    about: About
    cost: Cost


def cost(algo: Algorithm, d: int = D) -> Cost:
    """What the algorithm really sends to and from one client, and what that client keeps."""
    theta0 = torch.zeros(d)
    algo = with_system(algo, algo.sys._replace(K=1))  # messages do not depend on K
    fleet = Serial(algo, theta0, Flat)
    server = algo.server(theta0)
    opening, _ = play_stage(algo, fleet, server, -1, "opening", [0])
    step, _ = play_stage(algo, fleet, server, 0, "round", [0])
    memory = bits(fleet.states[0]) / 32 / d
    return Cost(*in_vectors(step, d), *in_vectors(opening, d), memory)


def costs(algo: Algorithm, d: int) -> list[Cost]:
    """The cost with each compressor that may be chosen; usually that is one."""
    C = getattr(algo, "C", None)
    if not isinstance(C, AnyOf):
        return [cost(algo, d)]
    return [cost(replace(algo, C=choice), d) for choice in C.choices]


def in_vectors(step: Step, d: int) -> tuple[float, float]:
    """Vectors (down, up) that the one client of a step received and sent."""
    totals = {"down": 0.0, "up": 0.0}
    for line in step.traffic:
        totals[line.direction] += line.bits / 32 / d
    return totals["down"], totals["up"]


def catalog() -> list[Entry]:
    """All registered algorithms."""
    return [Entry(name, cls.about, cost(build(name, TOY))) for name, cls in REGISTRY.items()]
