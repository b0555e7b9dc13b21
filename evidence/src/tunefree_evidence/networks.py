"""The papers' networks, and those of the challenge."""

from __future__ import annotations

import torch
from torch import nn


def cnn_mnist(input_shape: tuple[int, ...], classes: int, dropout: bool = False) -> nn.Module:
    """Two 5x5 convolutions and two dense layers; 21,840 parameters on 28x28 with 10 classes.

    The papers' text says three convolutions, their parameter count says this network. Dropout is
    off unless asked for, so that variance-reduced methods and gradient norms are comparable.
    """
    channels, height, width = input_shape
    left = ((height - 4) // 2 - 4) // 2 * (((width - 4) // 2 - 4) // 2)
    noise: list[nn.Module] = [nn.Dropout2d(0.5)] if dropout else []
    dense_noise: list[nn.Module] = [nn.Dropout(0.5)] if dropout else []
    return nn.Sequential(
        nn.Conv2d(channels, 10, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(10, 20, 5),
        *noise,
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(20 * left, 50),
        nn.ReLU(),
        *dense_noise,
        nn.Linear(50, classes),
    )


def cnn_emnist(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Three 3x3 convolutions and two dense layers; 135,663 parameters with 47 classes."""
    channels, height, width = input_shape
    layers: list[nn.Module] = []
    for before, after in ((channels, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    flat = 64 * (height // 8) * (width // 8)
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(flat, 128), nn.ReLU(), nn.Linear(128, classes)
    )


class Rows(nn.Module):
    """An image read row by row by a three-layer tanh RNN; the last state is classified."""

    def __init__(self, width: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.rnn = nn.RNN(width, hidden, num_layers=3, batch_first=True)
        self.classify = nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.rnn(x.squeeze(1))
        answer: torch.Tensor = self.classify(states[:, -1])
        return answer


def rnn3_emnist(input_shape: tuple[int, ...], classes: int, hidden: int = 128) -> nn.Module:
    """Rows of the image as time steps; 92,335 parameters with 47 classes."""
    _, _, width = input_shape
    return Rows(width, hidden, classes)


class Block(nn.Module):
    """Two 3x3 convolutions with GroupNorm around a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, padding=1, bias=False),
            nn.GroupNorm(2, after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.GroupNorm(2, after),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.GroupNorm(2, after)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet18_cifar(input_shape: tuple[int, ...], classes: int, width: int = 64) -> nn.Module:
    """ResNet-18 with a 3x3 stem and GroupNorm; 11,173,962 parameters at width 64, 10 classes.

    `width` is the number of channels of the first stage; 8 or 16 suits a CPU.
    """
    layers: list[nn.Module] = [
        nn.Conv2d(input_shape[0], width, 3, padding=1, bias=False),
        nn.GroupNorm(2, width),
        nn.ReLU(),
    ]
    before = width
    for stage in range(4):
        after = width * 2**stage
        layers += [Block(before, after, stride=1 if stage == 0 else 2), Block(after, after, 1)]
        before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


class Reader(nn.Module):
    """An embedding, one LSTM layer, and the mean of its states over the real words."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, batch_first=True)
        self.classify = nn.Linear(hidden, classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(self.embed(tokens))
        real = (tokens != 0).unsqueeze(-1)  # 0 pads
        pooled = (states * real).sum(dim=1) / real.sum(dim=1).clamp_min(1)
        answer: torch.Tensor = self.classify(pooled)
        return answer


def lstm_imdb(
    input_shape: tuple[int, ...],
    classes: int,
    vocabulary: int = 10_000,
    embedding: int = 64,
    hidden: int = 64,
) -> nn.Module:
    """A word LSTM; 673,410 parameters with 10,000 words and 2 classes."""
    return Reader(vocabulary, embedding, hidden, classes)


class Attention(nn.Module):
    """Embeddings of words and of their places, attention, and the mean over the real words."""

    def __init__(
        self,
        *,
        length: int,
        vocabulary: int,
        embedding: int,
        heads: int,
        layers: int,
        hidden: int,
        classes: int,
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, embedding)
        self.places = nn.Embedding(length, embedding)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                embedding, heads, hidden, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.classify = nn.Linear(embedding, classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states = self.embed(tokens) + self.places.weight[: tokens.shape[1]]
        pads = tokens == 0
        hidden = pads & ~pads.all(dim=1, keepdim=True)  # attention to nothing at all would be NaN
        for block in self.blocks:
            states = block(states, src_key_padding_mask=hidden)
        real = ~pads.unsqueeze(-1)
        pooled = (states * real).sum(dim=1) / real.sum(dim=1).clamp_min(1)
        answer: torch.Tensor = self.classify(pooled)
        return answer


def transformer_imdb(
    input_shape: tuple[int, ...],
    classes: int,
    vocabulary: int = 10_000,
    embedding: int = 32,
    heads: int = 2,
    layers: int = 1,
    hidden: int = 64,
) -> nn.Module:
    """A small encoder of words; 335,010 parameters with 200 of 10,000 words and 2 classes."""
    (length,) = input_shape
    return Attention(
        length=length,
        vocabulary=vocabulary,
        embedding=embedding,
        heads=heads,
        layers=layers,
        hidden=hidden,
        classes=classes,
    )


class Quadratic(nn.Module):
    """curvature^½ (θ - target), so that the mean square is a quadratic with known optimum."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(dimension))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        target, root = x[:, 0], x[:, 1]
        return root * (self.theta - target)


def quadratic(input_shape: tuple[int, ...]) -> nn.Module:
    """The model of the synthetic-quadratic data: its parameters are the point itself."""
    return Quadratic(input_shape[-1])
