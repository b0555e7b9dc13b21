"""A module and a loss as a function of one flat vector, and a client's oracle on its samples."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import nn

from tunefree.core import ConfigError, Generator, Vec, mean
from tunefree.data.samples import Index, Samples

Loss: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
EVALUATION_BATCH = 1000


class Objective:
    """Loss and gradient of a module at a flat vector theta of its trainable parameters.

    The module given is copied; parameters become views into one flat tensor. Frozen parameters and
    constant buffers stay as they are; buffers that change in training are refused.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss = nn.functional.cross_entropy,
        device: str | torch.device = "cpu",
    ) -> None:
        refuse_running_statistics(module)
        self.module = copy.deepcopy(module).to(device)
        self.loss = loss
        self.device = torch.device(device)
        self.stochastic = True  # until `check` has seen otherwise
        self._parameters = [p for p in self.module.parameters() if p.requires_grad]
        if not self._parameters:
            raise ConfigError(
                "the model has no trainable parameter; give a module whose parameters require grad"
            )
        kinds = {p.dtype for p in self._parameters}
        if len(kinds) > 1:
            raise ConfigError(
                f"the model mixes parameter types {sorted(map(str, kinds))}; convert it to one, "
                "for example with model.float()"
            )
        self.theta0: Vec = torch.cat([p.detach().reshape(-1) for p in self._parameters])
        self._theta = self.theta0.clone()
        self.sizes = [p.numel() for p in self._parameters]
        for p, view in zip(self._parameters, torch.split(self._theta, self.sizes), strict=True):
            p.data = view.view_as(p)

    @property
    def d(self) -> int:
        """The number of trainable parameters."""
        return self.theta0.numel()

    def module_at(self, theta: Vec) -> nn.Module:
        """The module with theta as its parameters, in evaluation mode."""
        self._theta.copy_(theta)
        self._set_training(False)
        return self.module

    def loss_and_grad(
        self, theta: Vec, x: torch.Tensor, y: torch.Tensor, seed: int
    ) -> tuple[Vec, Vec]:
        """F and ∇F on one batch; `seed` fixes dropout masks, so one xi gives one function."""
        self._theta.copy_(theta)
        self._set_training(True)
        if self.stochastic:
            torch.manual_seed(seed)
        loss = self.loss(self.module(x.to(self.device)), y.to(self.device))
        grads = torch.autograd.grad(loss, self._parameters)
        return loss.detach(), torch.cat([g.reshape(-1) for g in grads])

    def _set_training(self, mode: bool) -> None:
        if self.module.training is not mode:  # walking all layers at every step would show
            self.module.train(mode)

    @torch.no_grad()
    def outputs(self, theta: Vec, x: torch.Tensor) -> torch.Tensor:
        """What the module answers in evaluation mode."""
        answer: torch.Tensor = self.module_at(theta)(x.to(self.device))
        return answer

    def check(self, samples: Samples) -> None:
        """Try two samples: the shapes fit, the loss is one number, and no buffer moves."""
        x, y = samples.batch(slice(0, 2))
        before = {name: b.clone() for name, b in self.module.named_buffers()}
        with torch.random.fork_rng(devices=[]):
            try:
                first, grad = self.loss_and_grad(self.theta0, x, y, seed=1)
                second, grad_again = self.loss_and_grad(self.theta0, x, y, seed=2)
            except (RuntimeError, ValueError, IndexError, TypeError) as error:
                raise ConfigError(
                    f"the model and loss cannot take a batch with x {tuple(x.shape)} {x.dtype} and "
                    f"y {tuple(y.shape)} {y.dtype}: {str(error).splitlines()[0]}"
                ) from error
        if first.numel() != 1:
            raise ConfigError(
                f"the loss has shape {tuple(first.shape)}; it must be one number, the batch mean"
            )
        for name, buffer in self.module.named_buffers():
            if not torch.equal(buffer, before[name]):
                raise ConfigError(
                    f"the model's buffer {name!r} changes in training and cannot be averaged; "
                    "use a layer without running state"
                )
        self.stochastic = not (torch.equal(first, second) and torch.equal(grad, grad_again))


def refuse_running_statistics(module: nn.Module) -> None:
    """Batch norm's running mean and variance are no parameters; averaging them would be wrong."""
    for name, layer in module.named_modules():
        if getattr(layer, "track_running_stats", False):
            raise ConfigError(
                f"layer {name or 'model'!r} ({type(layer).__name__}) keeps running statistics, "
                "which clients with different data cannot share; use GroupNorm, or "
                "track_running_stats=False"
            )


class Batch(NamedTuple):
    """One xi: which samples, and the seed of any noise inside the model."""

    places: Index
    seed: int


class DataOracle:
    """A client's oracle: mini-batches by cycling through a reshuffled local set."""

    def __init__(
        self,
        objective: Objective,
        samples: Samples,
        part: Index,
        batch_size: int,
        rng: Generator,
    ) -> None:
        self.n = len(part)
        self.rng = rng
        self.drawn = 0  # samples handed out in gradients
        self._objective, self._samples, self._part = objective, samples, part
        self._batch_size = batch_size
        self._left: Index = np.empty(0, dtype=np.int64)

    def draw(self) -> Batch:
        if not len(self._left):
            self._left = self.rng.permutation(self._part)
        places, self._left = self._left[: self._batch_size], self._left[self._batch_size :]
        return Batch(places, int(self.rng.integers(2**31)))

    def grad(self, theta: Vec, xi: Batch) -> Vec:
        return self.loss_and_grad(theta, xi)[1]

    def loss_and_grad(self, theta: Vec, xi: Batch) -> tuple[Vec, Vec]:
        self.drawn += len(xi.places)
        return self._objective.loss_and_grad(theta, *self._samples.batch(xi.places), xi.seed)

    def full_grad(self, theta: Vec) -> Vec:
        seed = int(self.rng.integers(2**31))
        parts = np.split(self._part, range(EVALUATION_BATCH, self.n, EVALUATION_BATCH))
        grads = [self.grad(theta, Batch(part, seed)) for part in parts]
        return mean(grads, [len(part) for part in parts])
