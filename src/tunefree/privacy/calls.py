"""What a method asks of a client's oracle in one job: found out by playing its rounds once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import torch

from tunefree.core import Algorithm, Generator, Reply, Vec, stream
from tunefree.fleet.job import Stage, exchanges
from tunefree.privacy.accountant import Gaussian


class Calls(NamedTuple):
    """Noisy gradients that leave a client's records.

    Attributes:
        batches: For each mini-batch, how many gradients are taken on it.
        full: Gradients over all records.
        losses: Losses, which are not private.
    """

    batches: tuple[int, ...] = ()
    full: int = 0
    losses: int = 0

    def releases(self, sigma: float, q: float) -> Counter[Gaussian]:
        """As the accountant counts them: gradients on one batch are one release, less noisy.

        >>> Calls((1, 1, 4)).releases(2.0, 0.1) == {Gaussian(2.0, 0.1): 2, Gaussian(1.0, 0.1): 1}
        True
        """
        found = Counter(Gaussian(sigma / times**0.5, q) for times in self.batches if times)
        return found + Counter({Gaussian(sigma): self.full})

    def within(self, allowed: Calls) -> bool:
        """Whether these are no more than those.

        >>> Calls((2, 1)).within(Calls((1, 1, 2))), Calls((1, 3)).within(Calls((2, 2)))
        (True, False)
        """
        mine, theirs = (sorted(filter(None, calls.batches))[::-1] for calls in (self, allowed))
        fits = len(mine) <= len(theirs) and all(a <= b for a, b in zip(mine, theirs, strict=False))
        return fits and self.full <= allowed.full and self.losses <= allowed.losses


class Counting:
    """An oracle without data, which counts what it is asked for."""

    n = 1

    def __init__(self) -> None:
        self.rng: Generator = stream(0, "calls")
        self._batches: list[int] = []
        self._full = self._losses = 0

    def draw(self) -> int:
        self._batches.append(0)
        return len(self._batches) - 1

    def grad(self, theta: Vec, xi: int) -> Vec:
        self._batches[xi] += 1
        return torch.ones_like(theta)

    def loss_and_grad(self, theta: Vec, xi: int) -> tuple[Vec, Vec]:
        self._losses += 1
        return theta.new_ones(()), self.grad(theta, xi)

    def mean_grad(self, theta: Vec, K: int) -> Vec:
        for _ in range(K):
            self.grad(theta, self.draw())
        return torch.ones_like(theta)

    def full_grad(self, theta: Vec) -> Vec:
        self._full += 1
        return torch.ones_like(theta)

    @property
    def calls(self) -> Calls:
        return Calls(tuple(self._batches), self._full, self._losses)


def calls_of(algo: Algorithm, theta0: Vec, stage: Stage) -> Iterator[Calls]:
    """For each exchange of a stage, what a client's work asks of its oracle."""
    server, client = algo.server(theta0), algo.client(theta0)
    for exchange in exchanges(algo, stage, 0):
        oracle = Counting()
        client, up = exchange.work(client, exchange.down(server), oracle)
        server = exchange.up(server, [Reply(0, 1, 0, up)])
        yield oracle.calls
