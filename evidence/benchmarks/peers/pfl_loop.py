"""FedAvg on workload A or B in pfl-research; it runs as many rounds as each input line says."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import sizes
import torch
from network import layers
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import nn


class Network(nn.Sequential):
    """What pfl needs of a module: its loss, and metrics that we never use."""

    def loss(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> torch.Tensor:
        self.train(not eval)
        return nn.functional.cross_entropy(self(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        return {}


class Gate(TrainingProcessCallback):
    """Lets one round run per ticket, and reports when it is over."""

    def __init__(self) -> None:
        self.tickets: queue.Queue[None] = queue.Queue()
        self.over: queue.Queue[None] = queue.Queue()

    def after_central_iteration(self, metrics: Any, model: Any, *, central_iteration: int) -> Any:
        self.over.put(None)
        self.tickets.get()
        return False, Metrics()


def rounds(workload: str) -> Iterator[None]:
    x, y = map(torch.from_numpy, sizes.client_data())
    rng = np.random.default_rng(0)
    data = FederatedDataset(
        lambda i: PyTorchTensorDataset((x[i], y[i])), lambda: int(rng.integers(sizes.N))
    )
    module = Network(*layers(workload))
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    gate = Gate()
    epochs = sizes.K * sizes.BATCH // sizes.HELD
    never = 10**9

    def train() -> None:
        asyncio.set_event_loop(asyncio.new_event_loop())  # pfl needs one in its thread
        FederatedAveraging().run(
            NNAlgorithmParams(never, never, train_cohort_size=sizes.S, val_cohort_size=0),
            SimulatedBackend(data, None),
            model,
            NNTrainHyperParams(sizes.BATCH, epochs, sizes.ETA),
            callbacks=[gate],
            send_metrics_to_platform=False,
        )

    threading.Thread(target=train, daemon=True).start()
    while True:
        gate.over.get()
        yield
        gate.tickets.put(None)


if __name__ == "__main__":
    sizes.take_turns(rounds(sys.argv[1]))
