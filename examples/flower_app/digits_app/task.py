"""The network, the data of a client, training and testing."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH = 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        return self.body(x)


def samples(first, last):
    data = load_digits()
    x = torch.tensor(data.images, dtype=torch.float32) / 16
    return TensorDataset(x[first:last], torch.tensor(data.target)[first:last])


def load_data(partition, partitions):
    """A client's own samples: of only three classes, so that clients differ much."""
    x, y = samples(0, 1400).tensors
    own = torch.isin(y, torch.tensor([partition % 10, (partition + 1) % 10, (partition + 4) % 10]))
    places = own.nonzero().flatten()[partition::partitions]
    return DataLoader(TensorDataset(x[places], y[places]), batch_size=BATCH, shuffle=True)


def train(model, loader, epochs, lr):
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    model.train()
    total = 0.0
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / (epochs * len(loader))


def test(model):
    """Loss and accuracy on samples that no client has."""
    x, y = samples(1400, 1797).tensors
    model.eval()
    with torch.no_grad():
        scores = model(x)
    accuracy = (scores.argmax(1) == y).float().mean()
    return nn.functional.cross_entropy(scores, y).item(), accuracy.item()
