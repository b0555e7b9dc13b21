"""Quadratics with a known optimum: f_i(θ) is client i's mean of a (θ - b)², per coordinate."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from tunefree.data import Dataset, Partition, Samples, stream
from tunefree.errors import ConfigError


def quadratic(
    dimension: int = 10,
    clients: int = 100,
    samples: int = 100,
    heterogeneity: float = 1.0,
    noise: float = 0.1,
    curvature: float = 1.0,
    seed: int = 0,
) -> Dataset:
    """A data set in which client i's samples scatter around its own target b_i.

    heterogeneity: the spread of the b_i around a common centre of unit size
    noise: the spread of a client's samples around its b_i
    curvature: the largest over the smallest curvature; 1 gives every client the same bowl
    """
    check_options({"dimension": dimension, "clients": clients, "samples": samples}, 1, int)
    check_options({"seed": seed}, 0, int)
    check_options({"heterogeneity": heterogeneity, "noise": noise}, 0, (int, float))
    check_options({"curvature": curvature}, 1, (int, float))
    rng = stream(seed, "synthetic quadratic")
    centre = rng.standard_normal(dimension) / np.sqrt(dimension)
    b = centre + heterogeneity / np.sqrt(dimension) * rng.standard_normal((clients, dimension))
    root = curvature ** rng.uniform(-0.25, 0.25, (clients, dimension))  # a^½, so a spans curvature
    groups = np.repeat(np.arange(clients), samples)
    test_groups = np.repeat(np.arange(clients), max(1, samples // 5))
    return Dataset(
        name="synthetic-quadratic",
        train=scatter(b, root, groups, noise, rng),
        test=scatter(b, root, test_groups, noise, rng),
        classes=None,
        model="quadratic",
        groups=groups,
    )


def check_options(
    options: Mapping[str, float], least: float, kind: type | tuple[type, ...]
) -> None:
    """Refuse options of the wrong type, or too small."""
    for key, value in options.items():
        if isinstance(value, bool) or not isinstance(value, kind):
            name = "whole number" if kind is int else "number"
            raise ConfigError(f"synthetic-quadratic {key} = {value!r} must be a {name}")
        if not least <= value < float("inf"):
            raise ConfigError(
                f"synthetic-quadratic {key} = {value} must be at least {least} and finite"
            )


def scatter(
    b: np.ndarray, root: np.ndarray, groups: np.ndarray, noise: float, rng: np.random.Generator
) -> Samples:
    """One sample per entry of `groups`: [its target, the square root of the curvature]."""
    n, dimension = len(groups), b.shape[1]
    target = b[groups] + noise / np.sqrt(dimension) * rng.standard_normal((n, dimension))
    x = np.stack([target, root[groups]], axis=1).astype(np.float32)
    return Samples(torch.from_numpy(x), torch.zeros(n, dimension))


def optimum(train: Samples, parts: Partition) -> torch.Tensor:
    """The exact minimiser of f = (1/N) Σ f_i on these samples, in double precision.

    >>> data = quadratic(dimension=2, clients=3, samples=4, noise=0, heterogeneity=0)
    >>> parts = Partition([np.arange(4), np.arange(4, 12)])
    >>> bool(torch.allclose(optimum(data.train, parts), data.train.x[0, 0].double()))
    True
    """
    target, root = train.x[:, 0].double(), train.x[:, 1].double()
    owner = torch.from_numpy(np.repeat(np.arange(len(parts)), parts.sizes))
    weight = 1 / torch.from_numpy(parts.sizes)[owner].double().unsqueeze(1)
    at = torch.from_numpy(parts.order)
    pull = weight * root[at] ** 2
    best: torch.Tensor = (pull * target[at]).sum(dim=0) / pull.sum(dim=0)
    return best
