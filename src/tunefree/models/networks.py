"""Two small networks that suit any input."""

from __future__ import annotations

import math

from torch import nn


def logistic(input_shape: tuple[int, ...], classes: int | None) -> nn.Module:
    """Softmax regression on the flattened input; without classes, linear with one output."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), classes or 1))


def mlp(input_shape: tuple[int, ...], classes: int | None, hidden: int = 64) -> nn.Module:
    """One hidden ReLU layer on the flattened input; without classes, one output."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(input_shape), hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes or 1),
    )
