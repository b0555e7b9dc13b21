"""Flower nodes without processes: a Grid that calls a real ClientApp directly."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from torch import nn

from tunefree.flower.clientapp import client_app

Changed = Callable[[int, Message], Message | None]  # a node's reply as the server gets it, or None
N_SAMPLES, D_IN, CLASSES = 24, 6, 3


def build_model() -> nn.Module:
    return nn.Linear(D_IN, CLASSES)


def samples(place: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(place)
    x = torch.randn(N_SAMPLES + place, D_IN, generator=generator)
    return x, (x[:, :CLASSES] + 0.1 * place).argmax(dim=1)


def load_data(context: Context) -> Any:
    return samples(int(context.node_config["partition-id"]))


def load_test(context: Context | None) -> Any:
    return samples(99)


class Nodes:
    """A Grid of nodes in this process; each has its own folder, as on its own machine."""

    def __init__(self, folder: Path, places: Iterable[int], run_config: dict[str, Any]) -> None:
        self.folder, self.run_config = folder, run_config
        self.app = client_app(build_model, load_data)
        self.places = {1000 + place: place for place in places}  # node -> partition-id
        self.change: Changed = lambda node, reply: reply
        self.tell: Callable[[int, Message], None] = lambda node, message: None  # change it first
        self.sent: list[Message] = []
        self.received: list[Message] = []
        self._ready: dict[str, Message] = {}
        self._shuffle = random.Random(0)
        self.node_config: dict[str, Any] = {}  # with {} for the partition-id
        self.most = 100  # replies that arrive at a time
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # as a ServerApp

    def store(self, node: int) -> Path:
        return self.folder / f"store{self.places[node]}"

    def get_node_ids(self) -> list[int]:
        return list(self.places)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        numbers = []
        for message in messages:
            number = f"message {len(self.sent)}"
            message.metadata.__dict__["_message_id"] = number
            self.sent.append(message)
            numbers.append(number)
            node = message.metadata.dst_node_id
            self.tell(node, message)
            if (reply := self.change(node, self.answer(node, message))) is not None:
                self._ready[number] = reply
        return numbers

    def answer(self, node: int, message: Message) -> Message:
        place = self.places[node]
        config = {"partition-id": place, "store": str(self.store(node))}
        for key, value in self.node_config.items():
            config[key] = value.format(place) if isinstance(value, str) else value
        context = Context(1, node, cast("Any", config), RecordDict(), self.run_config)
        try:
            return self.app(message, context)
        except Exception as error:
            return Message(Error(2, f"Traceback\n{error}"), reply_to=message)

    def pull_messages(self, numbers: Iterable[str]) -> list[Message]:
        come = [number for number in numbers if number in self._ready]
        self._shuffle.shuffle(come)
        come = come[: self.most]
        replies = [self._ready.pop(number) for number in come]
        self.received += replies
        return replies


class Answering:
    """A Grid for Flower's strategies, whose nodes run a user's ClientApp in this process."""

    def __init__(self, app: Any, places: int, run_config: dict[str, Any] | None = None) -> None:
        self.app, self.places, self.run_config = app, range(places), run_config or {}
        self.rounds: list[int] = []
        self.change: Callable[[int, Message], Message] = lambda place, reply: reply
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # a ServerApp's

    def get_node_ids(self) -> list[int]:
        return [place + 1 for place in self.places]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float) -> list[Message]:
        replies = [self.answer(message) for message in messages]
        return replies[::-1]  # in any order

    def answer(self, message: Message) -> Message:
        content: Any = message.content
        place = message.metadata.dst_node_id - 1
        message.metadata.__dict__["_message_id"] = f"message {place}"
        node = {"partition-id": place, "num-partitions": len(self.places)}
        context = Context(1, place + 1, cast("Any", node), RecordDict(), self.run_config)
        reply: Message = self.app(message, context)
        if message.metadata.message_type == "train":
            self.rounds.append(int(content["config"]["server-round"]))
            reply = self.change(place, reply)
        reply.metadata.__dict__["_src_node_id"] = place + 1
        return reply


def config(folder: Path, **settings: Any) -> dict[str, Any]:
    """A run config with short waits."""
    usual: dict[str, Any] = {
        "algorithm": "padamfed",
        "rounds": 8,
        "local_steps": 1,
        "batch_size": 8,
        "clients": 3,
        "eval_every": 4,
        "deadline": 0.5,
        "wait": 5.0,
        "out": str(folder / "run.sqlite"),
    }
    return usual | settings


def context(run_config: dict[str, Any]) -> Any:
    return SimpleNamespace(run_config=run_config)
