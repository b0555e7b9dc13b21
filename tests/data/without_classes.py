"""Data and a model for `--data` and `--model` that have no classes and no matrices."""

from __future__ import annotations

import torch
from torch import nn

Client = tuple[torch.Tensor, torch.Tensor]


def clients() -> list[Client]:
    """Twenty clients whose targets are three times their inputs."""
    x = torch.linspace(-1, 1, 200).view(20, 10, 1)
    return [(mine, 3 * mine) for mine in x]


class Factor(nn.Module):
    """Multiplies its input."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * x
