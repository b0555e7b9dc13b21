"""Inputs and targets with mean 0 and deviation 1 for a model that sees and gives original units.

The mean and the deviation follow from sums: each client's numbers of samples, sums and sums of
squares are added up, and nothing else of its data is needed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tunefree.data.samples import Federation, Index, Inputs, Samples, tensors_of
from tunefree.errors import ConfigError
from tunefree.models.answers import Answer, call, copy_of, loss_of_model, tried
from tunefree.models.objective import EVALUATION_BATCH, Objective
from tunefree.models.targets import TRIED, InDeviations, Loss, OnOutputs, is_one_of

Scaling: TypeAlias = Mapping[str, tuple[list[float], list[float]]]  # means and deviations, by name

TARGETS = "targets"
OF_NUMBERS = (
    functional.mse_loss,
    functional.l1_loss,
    functional.smooth_l1_loss,
    functional.huber_loss,
    nn.MSELoss,
    nn.L1Loss,
    nn.SmoothL1Loss,
    nn.HuberLoss,
)
LOOKED_AT = 500  # samples, to see whether they are far from 1
FAR = 10.0  # times 1, from which on a model learns slowly or not at all
SMALL = 0.005  # deviation of targets, likewise


class Sums(NamedTuple):
    """What a client sends for one tensor: how many numbers per column, sums, sums of squares."""

    n: int
    first: torch.Tensor
    second: torch.Tensor

    def plus(self, other: Sums) -> Sums:
        return Sums(self.n + other.n, self.first + other.first, self.second + other.second)

    @property
    def moments(self) -> tuple[list[float], list[float]]:
        """Means and deviations; 0 and 1 where only zeros and ones, or a single value, stand."""
        mean = self.first / self.n
        deviation = (self.second / self.n - mean**2).clamp(min=0).sqrt()
        constant = deviation <= 1e-7 * mean.abs()
        mask = bool((self.first == self.second).all())
        mean, deviation = mean * (not mask), deviation.where(~constant & ~torch.tensor(mask), 1.0)
        return mean.float().tolist(), deviation.float().tolist()


def columns(values: torch.Tensor) -> torch.Tensor:
    """Features of (n, d) tensors are columns; all numbers of images and the like are one."""
    return values.double().reshape(-1, values.shape[1] if values.dim() == 2 else 1)


def sums_of(batches: Iterable[tuple[Inputs, torch.Tensor]], with_targets: bool) -> dict[str, Sums]:
    """What one client sends: the sums of its inputs that are floats, and perhaps of its targets."""
    total: dict[str, Sums] = {}
    for x, y in batches:
        tensors = tensors_of(x) | ({TARGETS: y} if with_targets else {})
        for name, values in tensors.items():
            if values.is_floating_point():
                part = columns(values)
                sums = Sums(len(part), part.sum(0), (part * part).sum(0))
                total[name] = total[name].plus(sums) if name in total else sums
    return total


def in_batches(samples: Samples, part: Index) -> Iterable[tuple[Inputs, torch.Tensor]]:
    cuts = range(EVALUATION_BATCH, len(part), EVALUATION_BATCH)
    return (samples.batch(places) for places in np.split(part, cuts))


def standardised(objective: Objective, federation: Federation) -> Objective:
    """The objective of the module between scaled inputs and targets, with its loss on the latter.

    Targets are scaled for losses of numbers (squared error and its relatives), whose model returns
    a tensor.
    """
    train, module, loss = federation.train, objective.module, objective.loss
    if loss is loss_of_model:
        raise ConfigError(
            "cannot be used with a model that computes its own loss",
            "scale the inputs in its forward, or pass a loss",
            setting="standardise",
            value=True,
        )
    x, y = train.batch(slice(0, TRIED))
    answer = tried(copy_of(module).eval(), x, y)
    numbers = of_numbers(loss) and isinstance(answer, torch.Tensor)
    total: dict[str, Sums] = {}
    for part in federation.parts:
        sums = sums_of(in_batches(train, part), numbers)
        total = {name: total[name].plus(s) if name in total else s for name, s in sums.items()}
    scaling = {name: sums.moments for name, sums in total.items()}
    scaled = Standardised(module, scaling).to(objective.device)
    loss = InDeviations(loss, *scaled.moments(TARGETS)) if numbers else loss
    return objective.within(scaled, loss)


def of_numbers(loss: Loss) -> bool:
    return is_one_of(loss.loss if isinstance(loss, OnOutputs) else loss, OF_NUMBERS)


class Standardised(nn.Module):
    """A module for inputs and targets in original units: inside, they have mean 0, deviation 1."""

    def __init__(self, module: nn.Module, scaling: Scaling) -> None:
        super().__init__()
        self.module, self.scaling = module, scaling
        for i, (mean, deviation) in enumerate(scaling.values()):
            self.register_buffer(f"mean_{i}", torch.tensor(mean))
            self.register_buffer(f"deviation_{i}", torch.tensor(deviation))

    def moments(self, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        i = list(self.scaling).index(name)
        return self.get_buffer(f"mean_{i}"), self.get_buffer(f"deviation_{i}")

    def scaled(self, name: str, values: torch.Tensor) -> torch.Tensor:
        if name not in self.scaling:
            return values
        mean, deviation = self.moments(name)
        return (values - mean) / deviation

    def forward(self, *x: torch.Tensor, **named: torch.Tensor) -> Answer:
        given = tensors_of(named or (x if len(x) > 1 else x[0]))
        tensors = [self.scaled(name, values) for name, values in given.items()]
        answer = call(self.module, dict(zip(named, tensors, strict=True)) if named else (*tensors,))
        if TARGETS not in self.scaling:
            return answer
        mean, deviation = self.moments(TARGETS)
        return answer * deviation + mean


def note_scale(objective: Objective, federation: Federation) -> None:
    """Warn of inputs and targets that are far from 1, from a look at some of them."""
    n = len(federation.train)
    places = np.unique(np.linspace(0, n - 1, min(n, LOOKED_AT)).astype(np.int64))
    if federation.train.lazy:  # a collate_fn may give each client's batches another shape
        places = federation.parts[0][:LOOKED_AT]
    sums = sums_of([federation.train.batch(places)], of_numbers(objective.loss))
    for name, each in sums.items():
        for column, (mean, deviation) in enumerate(zip(*each.moments, strict=True)):
            narrow = name == TARGETS and deviation < SMALL
            if max(abs(mean), deviation) > FAR or narrow:
                which = f", column {column}," if len(each.first) > 1 else ""
                plural = name if name == TARGETS else name.replace("input", "inputs", 1)
                warnings.warn(
                    f"the {plural}{which} have mean {mean:.4g} and deviation {deviation:.4g}, and "
                    "models learn numbers about 1 best: pass standardise=True, or scale them",
                    stacklevel=2,
                )
                return
