"""PolarFL as a strategy of Flower, for an app that stays as it is; Flower's public API only.

The server of `polarfl_stateless`: it keeps momentum, units, reach and average. The clients train
with `tunefree.optim.LocalSteps` and reply with its `upload()` in place of their model.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result
from torch import nn

from tunefree.core import Reply, System, Vec, bind
from tunefree.errors import ConfigError
from tunefree.methods.polarfl_stateless import PolarFLStateless, Server, Up

__all__ = ["PolarFL"]

LOG = logging.getLogger("flwr")
LONGEST = 1.0 + 1e-3  # of an upload, which is 1 up to rounding


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
        if local_steps < 1:
            raise ConfigError("must be at least 1", setting="local_steps", value=local_steps)
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if not trained:
            raise ConfigError("the model has no parameter that needs a gradient")
        if floating := [name for name, b in model.named_buffers() if b.is_floating_point()]:
            raise ConfigError(
                f"the model has state that gradients do not train, such as '{floating[0]}'; "
                "tunefree.models.group_norm(model) puts group norm in place of batch norm"
            )
        self._K, self._file = local_steps, Path(checkpoint) if checkpoint else None
        self._shapes = {name: tuple(p.shape) for name, p in trained.items()}
        self._rest: dict[str, torch.Tensor] = {}
        self._server: Server | None = None
        self._S, self._before = 0, 0  # nodes asked in a round; rounds before this start

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        *more: Any,
        **others: Any,
    ) -> Result:
        """As Flower's `start`: rounds of training and evaluation."""
        state = initial_arrays.to_torch_state_dict()
        if missing := [name for name in self._shapes if name not in state]:
            raise ConfigError(
                f"initial_arrays has no '{missing[0]}'; give the arrays of the same model: "
                "ArrayRecord(model.state_dict())"
            )
        self._rest = {name: value for name, value in state.items() if name not in self._shapes}
        self._server = self._bound(1).server(self._flat(state))
        if self._file is not None and self._file.exists():
            stored = torch.load(self._file, weights_only=True)
            if stored["shapes"] != self._shapes:
                raise ConfigError(f"'{self._file}' is of another model; give another file")
            self._server, self._before = Server(**stored["server"]), stored["server"]["t"]
            LOG.info("going on after round %s, from %s", self._before, self._file)
        if self._before >= num_rounds:
            raise ConfigError(
                f"is too small: '{self._file}' has {self._before} rounds already",
                f"give more than {self._before}",
                setting="num_rounds",
                value=num_rounds,
            )
        left = num_rounds - self._before
        return super().start(grid, self._arrays(self._server.theta), left, *more, **others)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask nodes to train from the iterate, with the lengths of their steps."""
        assert self._server is not None
        messages = list(super().configure_train(server_round + self._before, arrays, config, grid))
        if not messages:
            return messages
        self._S = len(messages)
        down = self._bound(self._S).broadcast(self._server)
        config["steps"] = list(down.steps)
        config["sizes"] = [torch.Size(shape).numel() for shape in self._shapes.values()]
        config["local-steps"] = self._K
        for message in messages:
            message.content[self.arrayrecord_key] = self._arrays(down.x)
            message.content[self.configrecord_key] = config
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """One step of the server along the mean of the uploads."""
        assert self._server is not None
        uploads, contents = list[Reply](), []
        for message in sorted(replies, key=lambda message: message.metadata.src_node_id):
            u, wrong = self._upload(message)
            if u is None:
                LOG.warning("node %s is not used: %s", message.metadata.src_node_id, wrong)
            else:
                uploads.append(Reply(len(uploads), n=1, tau=0, up=Up(u)))
                contents.append(message.content)
        if not uploads:
            return None, None
        self._server = self._bound(self._S).aggregate(self._server, uploads)
        self._store()
        metrics = self.train_metrics_aggr_fn(contents, self.weighted_by_key)
        return self._arrays(self._server.theta), metrics

    def _upload(self, message: Message) -> tuple[Vec | None, str]:
        """The vector of a reply; or none, and what is wrong with it."""
        if message.has_error():
            return None, str(message.error.reason)
        (record, *_) = message.content.array_records.values()
        found = dict(record.to_torch_state_dict())
        numbers = {name: tuple(value.shape) for name, value in found.items()}
        if all(name.isdecimal() for name in found):  # of parameters without names
            numbers = dict(zip(self._shapes, numbers.values(), strict=False))
            found = dict(zip(self._shapes, found.values(), strict=False))
        if numbers != self._shapes:
            return None, "reply with ArrayRecord(optimizer.upload()), not with a model"
        u = self._flat(found)
        length = float(torch.linalg.vector_norm(u))
        if not length <= LONGEST:  # nan too
            return None, f"its norm is {length:.3g}, and LocalSteps uploads at most 1"
        return u, ""

    def _bound(self, S: int) -> PolarFLStateless:
        shapes = tuple(self._shapes.values())
        return bind(PolarFLStateless(), System(N=S, S=S, K=self._K, T=1), shapes)

    def _flat(self, state: dict[str, torch.Tensor]) -> Vec:
        return torch.cat([state[name].detach().float().flatten() for name in self._shapes])

    def _arrays(self, theta: Vec) -> ArrayRecord:
        """A model's arrays: the flat vector, and what is not trained, as at the start."""
        sizes = [torch.Size(shape).numel() for shape in self._shapes.values()]
        parts: Sequence[Vec] = torch.split(theta, sizes)
        trained = zip(self._shapes.items(), parts, strict=True)
        state = {name: part.view(shape) for (name, shape), part in trained} | self._rest
        return ArrayRecord({name: Array(value.cpu().numpy()) for name, value in state.items()})

    def _store(self) -> None:
        if self._file is None or self._server is None:
            return
        part = self._file.with_name(self._file.name + ".part")
        torch.save({"shapes": self._shapes, "server": self._server._asdict()}, part)
        part.replace(self._file)  # so that a kill leaves the old or the new one
