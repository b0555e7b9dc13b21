"""PolarFL as a strategy of Flower, for an app that stays as it is; Flower's public API only.

The clients train with `tunefree.optim.LocalSteps` and reply with its `upload()` in place of their
model; `tunefree.optim.Server` is the rest.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result
from torch import nn

from tunefree.errors import ConfigError
from tunefree.optim import Server

__all__ = ["PolarFL"]

LOG = logging.getLogger("flwr")


class PolarFL(FedAvg):
    """No learning rate on the server either: `PolarFL(model, local_steps=50).start(...)`.

    Nodes are chosen, evaluated and counted as by Flower's FedAvg, whose arguments it takes too.
    Uploads have equal weights. Evaluation functions and `Result.arrays` get the averaged model.

    Args:
        model: The initial model, which `start` is given too, as `initial_arrays`.
        local_steps: How many steps a client takes in a round, about.
        checkpoint: A file in which the server is stored after every round; if it is there,
            `start` goes on after its last round.
        **of_fedavg: `fraction_train`, `min_train_nodes`, ... as in Flower's FedAvg.
    """

    def __init__(
        self,
        model: nn.Module,
        local_steps: int,
        checkpoint: str | os.PathLike[str] | None = None,
        **of_fedavg: Any,
    ) -> None:
        super().__init__(**of_fedavg)
        self._server = Server(model, local_steps)
        self._file, self._before = Path(checkpoint) if checkpoint else None, 0

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        *more: Any,
        **others: Any,
    ) -> Result:
        """As Flower's `start`: rounds of training and evaluation."""
        self._server.reset(initial_arrays.to_torch_state_dict())
        if self._file is not None and self._file.exists():
            self._server.load_state_dict(torch.load(self._file, weights_only=True))
            LOG.info("going on after round %s, from %s", self._server.rounds, self._file)
        self._before = self._server.rounds
        if self._before >= num_rounds:
            raise ConfigError(
                f"is too small: '{self._file}' has {self._before} rounds already",
                f"give more than {self._before}",
                setting="num_rounds",
                value=num_rounds,
            )
        left = num_rounds - self._before
        return super().start(grid, arrays_of(self._server.model()), left, *more, **others)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask nodes to train from the iterate, with the lengths of their steps."""
        messages = list(super().configure_train(server_round + self._before, arrays, config, grid))
        if messages:
            config.update(self._server.config(len(messages)))
        for message in messages:
            message.content[self.arrayrecord_key] = arrays_of(self._server.start())
            message.content[self.configrecord_key] = config
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """One step of the server along the mean of the uploads."""
        uploads, contents = [], []
        for message in sorted(replies, key=lambda message: message.metadata.src_node_id):
            if message.has_error():
                wrong = str(message.error.reason)
            else:
                (record, *_) = message.content.array_records.values()
                upload = record.to_torch_state_dict()
                wrong = self._server.wrong(upload)
            if wrong:
                LOG.warning("node %s is not used: %s", message.metadata.src_node_id, wrong)
            else:
                uploads.append(upload)
                contents.append(message.content)
        if not uploads:
            return None, None
        self._server.step(uploads)
        if self._file is not None:
            part = self._file.with_name(self._file.name + ".part")
            torch.save(self._server.state_dict(), part)
            part.replace(self._file)  # so that a kill leaves the old or the new one
        metrics = self.train_metrics_aggr_fn(contents, self.weighted_by_key)
        return arrays_of(self._server.model()), metrics


def arrays_of(state: Mapping[str, torch.Tensor]) -> ArrayRecord:
    return ArrayRecord({name: Array(value.cpu().numpy()) for name, value in state.items()})
