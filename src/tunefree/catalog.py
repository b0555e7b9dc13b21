"""What each registered algorithm costs, measured by playing it on a probe, and what it says."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from tunefree.algorithms import REGISTRY, build
from tunefree.core import About, Algorithm, Generator, System, Vec
from tunefree.fleet.serial import Serial
from tunefree.schedule.sync import synchronous
from tunefree.schedule.trip import Job, Step
from tunefree.wire import bits

D = 1000
TOY = System(N=2, S=1, K=1, T=4)


class Probe:
    """The oracle of f = 0, on which no step size can go wrong."""

    n, drawn = 1, 1

    def __init__(self, job: Job) -> None:
        self.rng: Generator = np.random.default_rng(job.key)

    def draw(self) -> None:
        return None

    def grad(self, theta: Vec, xi: None) -> Vec:
        return 0 * theta

    def loss_and_grad(self, theta: Vec, xi: None) -> tuple[Vec, Vec]:
        return 0 * theta[0], 0 * theta

    def full_grad(self, theta: Vec) -> Vec:
        return 0 * theta


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


def cost(algo: Algorithm) -> Cost:
    """What the algorithm really sends and keeps, per client."""
    theta0 = torch.ones(D)
    fleet = Serial(algo, theta0, Probe)
    steps = synchronous(algo, fleet, theta0, seed=0)
    opening, first = next(steps), next(steps)
    memory = bits(fleet.state(first.clients[0])) / 32 / D
    return Cost(*per_client(first), *per_client(opening), memory)


def per_client(step: Step) -> tuple[float, float]:
    """Vectors (down, up) that one client receives and sends in a step."""
    totals = {"down": 0.0, "up": 0.0}
    for line in step.traffic:
        totals[line.direction] += line.bits / line.messages / 32 / D
    return totals["down"], totals["up"]


def catalog() -> list[Entry]:
    """All registered algorithms."""
    return [Entry(name, cls.about, cost(build(name, TOY))) for name, cls in REGISTRY.items()]
