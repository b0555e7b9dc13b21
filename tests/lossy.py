"""A fleet that loses, repeats and delays replies."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tests.problem import CountingStates
from tunefree.core import Algorithm, Vec, stream
from tunefree.fleet.job import Done, Job
from tunefree.fleet.serial import Serial
from tunefree.testing import Problem, QuadraticOracle

LATE = 2  # calls of work after which a late reply arrives


class Lossy:
    """A fleet whose replies get lost, arrive twice, in any order, or in a later step.

    As in a real federation a client learns with its next job which reply was last accepted; until
    then it stores its new state beside the old one.
    """

    def __init__(self, fleet: Serial, lost: float, twice: float, late: float) -> None:
        self._fleet, self._rng = fleet, stream(3, "lossy")
        self._lost, self._twice, self._late = lost, twice, late
        self._underway: list[list[Done]] = [[] for _ in range(LATE)]
        self.states = CountingStates(fleet.states)
        self.accepted = self.states.accepted

    def work(self, jobs: Sequence[Job]) -> list[Done]:
        come, later = self._underway.pop(0), list[Done]()
        for done in self._fleet.work(jobs):
            chance = self._rng.random()
            if chance < self._lost:
                continue
            (later if chance < self._lost + self._late else come).append(done)
            if self._rng.random() < self._twice:
                (come if self._rng.random() < 0.5 else later).append(done)
        self._underway.append(later)
        return [come[place] for place in self._rng.permutation(len(come))]

    def close(self) -> None:
        """Nothing to stop."""


def lossy(algo: Algorithm, problem: Problem, *chances: float) -> tuple[Lossy, Vec]:
    theta0 = torch.from_numpy(problem.theta0)
    serial = Serial(algo, theta0, lambda job: QuadraticOracle(problem, job))
    return Lossy(serial, *chances), theta0
