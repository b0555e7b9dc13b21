"""The network, the data of a client, and the test."""

import torch
from sklearn.datasets import load_digits
from torch import nn


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def samples():
    data = load_digits()
    x = torch.tensor(data.images, dtype=torch.float32) / 16
    return x, torch.tensor(data.target)


def own(i):
    """A client's samples: of three classes."""
    x, y = (values[:1400] for values in samples())
    at = torch.isin(y, torch.tensor([2 * i, 2 * i + 1, (2 * i + 4) % 10])).nonzero().flatten()
    return torch.utils.data.TensorDataset(x[at[i::10]], y[at[i::10]])


def accuracy(model):
    x, y = (values[1400:] for values in samples())
    return (model(x).argmax(1) == y).float().mean().item()
