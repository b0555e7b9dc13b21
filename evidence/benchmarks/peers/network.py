"""The networks of workloads A and B in torch, for peers that take a module."""

from __future__ import annotations

from torch import nn


def layers(workload: str) -> list[nn.Module]:
    """They take images without a channel axis."""
    if workload == "B":
        return [nn.Flatten(), nn.Linear(784, 10)]
    return [
        nn.Unflatten(1, (1, 28)), nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(10, 20, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Linear(50, 10),
    ]  # fmt: skip
