"""The oracle of a client with samples: mini-batches, and the gradients on them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from tunefree.core import Generator, Vec, mean
from tunefree.data.samples import Index, Inputs, Samples, split
from tunefree.models.objective import EVALUATION_BATCH, Objective
from tunefree.settings import local_steps

AHEAD = 2**19  # numbers prepared for the network at a time


class Batch(NamedTuple):
    """One xi: sample indices, the samples, and the seed of any noise inside the model."""

    places: Index
    x: Inputs
    y: torch.Tensor
    seed: int


class DataOracle:
    """Mini-batches from cycling through the reshuffled local samples; counts samples used."""

    def __init__(
        self,
        objective: Objective,
        samples: Samples,
        part: Index,
        batch_size: int,
        rng: Generator,
        epochs: int = 0,
    ) -> None:
        self.n = len(part)
        self.steps = local_steps(self.n, batch_size, epochs)  # K_i; 0 is the algorithm's K
        self.rng = rng
        self.drawn = 0  # samples used in gradients
        self._objective, self._samples, self._part = objective, samples, part
        self._batch_size = batch_size
        self._left: Index = np.empty(0, dtype=np.int64)
        self._ready: deque[tuple[Index, Inputs, torch.Tensor]] = deque()

    def draw(self) -> Batch:
        if not self._ready:
            self._ready.extend(self._next_batches())
        return Batch(*self._ready.popleft(), self._noise())

    def _noise(self) -> int:
        return int(self.rng.integers(2**31)) if self._objective.stochastic else 0

    def _read(self, places: Index) -> tuple[Inputs, torch.Tensor]:
        """These samples; randomness in reading them is seeded from this client's stream."""
        random = self._samples.random
        return self._samples.batch(places, int(self.rng.integers(2**31)) if random else 0)

    def _next_batches(self) -> Iterator[tuple[Index, Inputs, torch.Tensor]]:
        """A few at a time: gathering and standardising them together is faster."""
        if not len(self._left):
            self._left = self._samples.order(self._part, self.rng)
        size = self._batch_size
        many = 1 if self._samples.lazy else max(1, AHEAD // (size * self._samples.numbers))
        together = size * many
        places, self._left = self._left[:together], self._left[together:]
        x, y = self._read(places)
        batches = zip(split(x, size), torch.split(y, size), strict=True)
        for start, batch in zip(range(0, len(places), size), batches, strict=True):
            yield places[start : start + size], *batch

    def grad(self, theta: Vec, xi: Batch) -> Vec:
        self.drawn += len(xi.places)
        return self._objective.grad(theta, xi.x, xi.y, xi.seed)

    def loss_and_grad(self, theta: Vec, xi: Batch) -> tuple[Vec, Vec]:
        self.drawn += len(xi.places)
        return self._objective.loss_and_grad(theta, xi.x, xi.y, xi.seed)

    def mean_grad(self, theta: Vec, K: int) -> Vec:
        """Whole passes in equal batches all have the same mean, so one of them is enough."""
        size = min(self._batch_size, self.n)
        noisy = self._objective.stochastic or self._samples.random
        equal = self.n % size == 0 and not noisy
        passes = K * size // self.n if equal else 0
        times = [1] * K
        if passes > 1:
            times = [passes] * (self.n // size) + [1] * (K - passes * self.n // size)
            self.drawn += (passes - 1) * self.n
        return mean((self.grad(theta, self.draw()) for _ in times), times)

    def full_grad(self, theta: Vec) -> Vec:
        seed = self._noise()
        parts = np.split(self._part, range(EVALUATION_BATCH, self.n, EVALUATION_BATCH))
        batches = (Batch(part, *self._read(part), seed) for part in parts)
        return mean((self.grad(theta, batch) for batch in batches), map(len, parts))
