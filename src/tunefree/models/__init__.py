"""Models by name: ours, those that installed packages offer, or the user's own function."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import nn

from tunefree.core import stream
from tunefree.errors import ConfigError, unknown_name
from tunefree.importing import named
from tunefree.models.norm import group_norm
from tunefree.models.objective import Objective

__all__ = ["Objective", "build", "group_norm"]


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


MODELS: dict[str, Callable[..., nn.Module]] = {"logistic": logistic, "mlp": mlp}


def build(
    name: str,
    input_shape: tuple[int, ...],
    classes: int | None,
    options: Mapping[str, object] = {},
    seed: int = 0,
) -> nn.Module:
    """The named model for this data, with initial weights that depend on the seed only.

    Args:
        name: `logistic`, `mlp`, one that an installed package offers, or package.module:function.
        input_shape: The shape of one sample.
        classes: The number of classes; None for a regression.
        options: Further keywords of the model's function.
        seed: The same seed gives the same weights.

    >>> sum(p.numel() for p in build("mlp", (1, 8, 8), classes=10).parameters())
    4810
    """
    builder = named("model", name, MODELS)
    if not callable(builder):
        raise ConfigError(
            "is not a function", "give one that returns a module", setting="model", value=name
        )
    given = {"input_shape": input_shape, "classes": classes}
    accepted = inspect.signature(builder).parameters
    choices = [key for key in accepted if key not in given]
    for key in options:
        if key not in choices:
            raise unknown_name(f"option of {name}", key, choices)
    arguments = {key: value for key, value in given.items() if key in accepted}
    try:
        module = seeded(partial(builder, **arguments, **options), seed)
    except (RuntimeError, ValueError, TypeError, AssertionError) as error:
        raise ConfigError(
            f"cannot be built for inputs of shape {input_shape} and {classes} "
            f"classes: {str(error).splitlines()[0]}",
            "choose another model",
            setting="model",
            value=name,
        ) from error
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"returned {type(module).__name__}",
            "it must return a torch nn.Module",
            setting="model",
            value=name,
        )
    return module


def seeded(builder: Callable[[], nn.Module], seed: int, what: str = "model") -> nn.Module:
    """The builder's module with initial weights that depend on the seed only.

    >>> one, same, other = (seeded(lambda: nn.Linear(1, 1), seed).weight for seed in (7, 7, 8))
    >>> bool(one == same), bool(one == other)
    (True, False)
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(seed, what).integers(2**31)))
        return builder()
