"""The oracle of a client with samples: mini-batches, and the gradients on them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from tunefree.core import Generator, Vec, mean, norm
from tunefree.data.samples import Index, Inputs, Samples, split
from tunefree.errors import ConfigError
from tunefree.models.objective import EVALUATION_BATCH, Objective
from tunefree.settings import local_steps

AHEAD = 2**19  # numbers prepared for the network at a time


class Batch(NamedTuple):
    """One xi: sample indices, the samples, and the seed of any noise inside the model."""

    places: Index
    x: Inputs
    y: torch.Tensor
    seed: int


def refuse_single_samples(
    objective: Objective, sizes: Sequence[int], batch_size: int, names: Sequence[str] = ()
) -> None:
    """Batch norm needs two samples at a time; a last batch of one is left out."""
    if objective.takes_one:
        return
    if batch_size == 1:
        raise ConfigError(
            "is too small for batch norm", "give 2 or more", setting="batch_size", value=1
        )
    if 1 in sizes:
        at = list(sizes).index(1)
        raise ConfigError(
            f"client {names[at] if names else at} has a single sample, and batch norm needs two; "
            "leave it out, or convert the model with tunefree.models.group_norm(model)"
        )


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
        accumulate: int = 1,
        clip: float = 0.0,
    ) -> None:
        """A draw is `accumulate` mini-batches, and gradients are cut to the norm `clip`, if any."""
        self.n, self.own = len(part), objective.own
        self._at_once, self._clip, self._plain = batch_size, clip, accumulate == 1 and not clip
        self._accumulate = accumulate
        batch_size *= accumulate
        self.steps = local_steps(self.n, batch_size, epochs)  # K_i; 0 is the algorithm's K
        self.rng = rng
        self.drawn = 0  # samples used in gradients
        self._objective, self._samples, self._part = objective, samples, part
        self._batch_size = batch_size
        self._left: Index = np.empty(0, dtype=np.int64)
        self._ready: deque[tuple[Index, Inputs, torch.Tensor]] = deque()

    def draw(self) -> Batch:
        if self.own is not None:
            self.own.step()
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
            if not self._objective.takes_one and len(self._left) % self._at_once == 1:
                self._left = self._left[:-1]  # another one is left out in the next pass
        size = self._batch_size
        many = 1 if self._samples.lazy else max(1, AHEAD // (size * self._samples.numbers))
        together = size * many
        places, self._left = self._left[:together], self._left[together:]
        x, y = self._read(places)
        batches = zip(split(x, size), torch.split(y, size), strict=True)
        for start, batch in zip(range(0, len(places), size), batches, strict=True):
            yield places[start : start + size], *batch

    def grad(self, theta: Vec, xi: Batch) -> Vec:
        if not self._plain:
            return self.loss_and_grad(theta, xi)[1]
        self.drawn += len(xi.places)
        return self._objective.grad(theta, xi.x, xi.y, xi.seed)

    def loss_and_grad(self, theta: Vec, xi: Batch) -> tuple[Vec, Vec]:
        loss, grad = self._unclipped(theta, xi)
        if self._clip:  # as torch.nn.utils.clip_grad_norm_ does
            grad = grad * (self._clip / (norm(grad) + 1e-6)).clamp(max=1.0)
        return loss, grad

    def _unclipped(self, theta: Vec, xi: Batch) -> tuple[Vec, Vec]:
        """Where gradients are accumulated, the mean over samples, a mini-batch at a time."""
        self.drawn += len(xi.places)
        if self._accumulate == 1:
            return self._objective.loss_and_grad(theta, xi.x, xi.y, xi.seed)
        ys = torch.split(xi.y, self._at_once)
        found, own = [], list[Vec]()
        for i, (x, y) in enumerate(zip(split(xi.x, self._at_once), ys, strict=True)):
            found.append(self._objective.loss_and_grad(theta, x, y, xi.seed + i))
            if self.own is not None and self.own.grad is not None:
                own.append(self.own.grad)
        sizes = [len(y) for y in ys]
        if self.own is not None:
            self.own.grad = mean(own, sizes)
        losses, grads = zip(*found, strict=True)
        return mean(losses, sizes), mean(grads, sizes)

    def mean_grad(self, theta: Vec, K: int) -> Vec:
        """Whole passes in equal batches all have the same mean, so one of them is enough."""
        size = min(self._batch_size, self.n)
        noisy = self._objective.stochastic or self._samples.random or self.own is not None
        equal = self.n % size == 0 and not noisy
        passes = K * size // self.n if equal else 0
        times = [1] * K
        if passes > 1:
            times = [passes] * (self.n // size) + [1] * (K - passes * self.n // size)
            self.drawn += (passes - 1) * self.n
        return mean((self.grad(theta, self.draw()) for _ in times), times)

    def full_grad(self, theta: Vec) -> Vec:
        seed = self._noise()
        cuts: Any = range(EVALUATION_BATCH, self.n, EVALUATION_BATCH)
        cuts = cuts if self._objective.takes_one else max(1, len(cuts))  # equal parts
        parts = np.array_split(self._part, cuts)
        batches = (Batch(part, *self._read(part), seed) for part in parts)
        grad = self.grad if self._plain else lambda theta, xi: self._unclipped(theta, xi)[1]
        return mean((grad(theta, batch) for batch in batches), map(len, parts))
