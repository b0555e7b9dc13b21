"""The workloads that speed is measured on; contents are random, sizes are the papers'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch

from tunefree import System
from tunefree.data import Federation, Images, Partition, Samples, stream
from tunefree.errors import unknown_name
from tunefree_evidence.datasets.text import TokenIds


class Workload(NamedTuple):
    """A model, the size and shape of each client's data, and the rounds."""

    name: str
    about: str
    model: str
    options: Mapping[str, object]
    shape: tuple[int, ...]
    classes: int
    N: int
    samples: int  # of one client
    S: int
    K: int
    batch: int
    words: int = 0  # vocabulary, if the samples are texts

    def system(self, rounds: int) -> System:
        return System(self.N, self.S, self.K, rounds)


IMAGE = (28, 28)
MOST = 100_000  # different samples
WORKLOADS = {
    w.name: w
    for w in (
        Workload(
            "A", "21,840-parameter CNN, the papers' setting",
            "cnn_mnist", {}, IMAGE, 10, N=100, samples=600, S=10, K=12, batch=100,
        ),
        Workload(
            "B", "softmax regression, mostly overhead",
            "logistic", {}, IMAGE, 10, N=100, samples=600, S=10, K=12, batch=100,
        ),
        Workload(
            "C", "three-convolution CNN, 135,663 parameters",
            "cnn_emnist", {}, IMAGE, 47, N=100, samples=600, S=10, K=5, batch=32,
        ),
        Workload(
            "C2", "ResNet-18 of width 16, 701,466 parameters",
            "resnet18_cifar", {"width": 16}, (3, 32, 32), 10,
            N=100, samples=500, S=10, K=5, batch=32,
        ),
        Workload(
            "D", "word LSTM, 673,410 parameters, texts of 128 words",
            "lstm_imdb", {}, (128,), 2, N=100, samples=250, S=10, K=5, batch=32, words=10_000,
        ),
    )
}  # fmt: skip


def workload(name: str, toy: bool = False) -> Workload:
    """The named workload; as a toy it only shows that everything runs."""
    if name not in WORKLOADS:
        raise unknown_name("workload", name, [*WORKLOADS, "E"])
    w = WORKLOADS[name]
    return w._replace(N=4, samples=8, S=2, K=2, batch=4) if toy else w


def federation(w: Workload) -> Federation:
    """Random samples in equal parts; with very many clients, several share the same."""
    n = min(w.N * w.samples, MOST)
    rng = stream(0, "workload")
    y = torch.from_numpy(rng.integers(w.classes, size=n))
    if w.words:
        x = torch.from_numpy(rng.integers(1, w.words, size=(n, *w.shape), dtype=np.int16))
        samples = Samples(x, y, TokenIds())
    else:
        x = torch.from_numpy(rng.integers(256, size=(n, *w.shape), dtype=np.uint8))
        channels = w.shape[0] if len(w.shape) == 3 else 1
        samples = Samples(x, y, Images(255, (0.5,) * channels, (0.25,) * channels))
    parts = Partition([])
    parts.order, parts.starts = np.arange(w.N * w.samples) % n, np.arange(w.N + 1) * w.samples
    return Federation(samples, parts, None, w.classes, f"workload {w.name}")
