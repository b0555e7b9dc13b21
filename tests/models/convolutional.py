"""Small convolutional networks for tests."""

from __future__ import annotations

from torch import nn


def few_channels(dropout: float = 0.0) -> nn.Sequential:
    """Two 5x5 convolutions of a 28x28 grey image, 10 classes."""
    noise = [nn.Dropout2d(dropout)] if dropout else []
    return nn.Sequential(
        *(nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(10, 20, 5), *noise, nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Linear(50, 10)),
    )


def many_channels(channels: int = 1) -> nn.Sequential:
    """Three padded 3x3 convolutions of a 28x28 image, 10 classes."""
    layers: list[nn.Module] = []
    for before, after in ((channels, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(
        *(*layers, nn.Flatten(), nn.Linear(64 * 9, 128), nn.ReLU(), nn.Linear(128, 10))
    )
