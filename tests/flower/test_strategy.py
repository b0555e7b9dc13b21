"""PolarFL as a strategy, with an app as Flower's users write it, against tunefree.train."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import tunefree
from tests.flower.nodes import D_IN, Answering, build_model, samples
from tunefree.errors import ConfigError
from tunefree.flower import PolarFL
from tunefree.optim import LocalSteps

K = 4
app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """What a user's client does: its own loop, on all of its samples."""
    model = build_model()
    content: Any = message.content
    model.load_state_dict(content["arrays"].to_torch_state_dict())
    optimizer = LocalSteps(model.named_parameters(), content["config"])
    x, y = samples(int(context.node_config["partition-id"]))
    for _ in range(K):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        torch.autograd.backward(loss)
        optimizer.step()
    metrics = MetricRecord({"num-examples": len(y), "loss": loss.item()})
    reply = RecordDict({"arrays": ArrayRecord(optimizer.upload()), "metrics": metrics})
    return Message(content=reply, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    model = build_model()
    content: Any = message.content
    model.load_state_dict(content["arrays"].to_torch_state_dict())
    metrics = MetricRecord({"num-examples": 1, "accuracy": accuracy(model)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=message)


def accuracy(model: nn.Module) -> float:
    x, y = samples(99)
    return float((model(x).argmax(dim=1) == y).float().mean())


def model_of() -> nn.Module:
    torch.manual_seed(3)
    return build_model()


def start(nodes: Any, rounds: int, **options: Any) -> Any:
    model = model_of()
    strategy = PolarFL(model, local_steps=K, **options)
    return strategy.start(nodes, ArrayRecord(model.state_dict()), num_rounds=rounds)


def theta(result: Any) -> torch.Tensor:
    return torch.cat([v.flatten() for v in result.arrays.to_torch_state_dict().values()])


def test_it_is_tunefree_on_the_same_batches() -> None:
    result = start(Answering(app, 3), rounds=12)
    run = tunefree.train(
        model_of(),
        [samples(place) for place in range(3)],
        algorithm="polarfl_stateless",
        rounds=12,
        per_round=3,
        local_steps=K,
        batch_size=100,  # all samples of a client
        fleet="serial",
        progress=False,
    )
    ours = torch.cat([p.detach().flatten() for p in run.model.parameters()])
    torch.testing.assert_close(theta(result), ours, rtol=1e-4, atol=1e-5)
    moved = torch.cat([p.detach().flatten() for p in model_of().parameters()]) - ours
    assert float(moved.norm()) > 0.5


def test_metrics_and_evaluation_are_flowers() -> None:
    seen = []

    def score(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        model = build_model()
        model.load_state_dict(arrays.to_torch_state_dict())
        seen.append(server_round)
        return MetricRecord({"accuracy": accuracy(model)})

    model = model_of()
    strategy = PolarFL(model, local_steps=K)
    arrays = ArrayRecord(model.state_dict())
    nodes: Any = Answering(app, 4)
    result: Any = strategy.start(nodes, arrays, num_rounds=20, evaluate_fn=score)
    assert seen == list(range(21))
    final = result.evaluate_metrics_serverapp[20]["accuracy"]
    assert final > 0.85 > result.evaluate_metrics_serverapp[0]["accuracy"]
    assert result.evaluate_metrics_clientapp[20]["accuracy"] == pytest.approx(final)
    assert result.train_metrics_clientapp[20]["loss"] < result.train_metrics_clientapp[1]["loss"]


def test_some_of_the_nodes_and_those_that_fail() -> None:
    nodes = Answering(app, 6)

    def broken(place: int, reply: Message) -> Message:
        return Message(Error(2, "no data"), reply_to=reply) if place == 2 else reply

    nodes.change = broken
    result = start(nodes, rounds=6, fraction_train=0.5)
    assert torch.isfinite(theta(result)).all()


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"weight": torch.ones(3, D_IN), "bias": torch.ones(3)}, "its norm is"),
        ({"weight": torch.full((3, D_IN), torch.nan), "bias": torch.ones(3)}, "its norm is nan"),
        ({"weight": torch.zeros(3, D_IN)}, "not with a model"),
        ({"weight": torch.zeros(D_IN, 3), "bias": torch.zeros(3)}, "not with a model"),
    ],
)
def test_a_wrong_upload_changes_nothing_and_is_named(
    arrays: dict[str, torch.Tensor], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    wrong, without = Answering(app, 3), Answering(app, 3)

    def bad(place: int, reply: Message) -> Message:
        record = ArrayRecord({name: Array(value.numpy()) for name, value in arrays.items()})
        reply.content["arrays"] = record if place == 1 else reply.content["arrays"]
        return reply

    def lost(place: int, reply: Message) -> Message:
        return Message(Error(2, "lost"), reply_to=reply) if place == 1 else reply

    wrong.change, without.change = bad, lost
    with caplog.at_level("WARNING", logger="flwr"):
        found = theta(start(wrong, rounds=3))
    assert "node 2 is not used" in caplog.text
    assert said in caplog.text
    assert torch.equal(found, theta(start(without, rounds=3)))


def test_it_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "server.pt"
    start(Answering(app, 3), rounds=5, checkpoint=file)
    nodes = Answering(app, 3)
    result = start(nodes, rounds=9, checkpoint=file)
    assert torch.equal(theta(result), theta(start(Answering(app, 3), rounds=9)))
    assert sorted(set(nodes.rounds)) == [6, 7, 8, 9]
    with pytest.raises(ConfigError, match="num_rounds = 9 is too small"):
        start(Answering(app, 3), rounds=9, checkpoint=file)
    other = nn.Linear(2, 2)
    with pytest.raises(ConfigError, match="another model"):
        PolarFL(other, local_steps=K, checkpoint=file).start(
            cast("Any", nodes), ArrayRecord(other.state_dict()), num_rounds=12
        )


def test_what_it_cannot_do_is_said() -> None:
    with pytest.raises(ConfigError, match="local_steps = 0"):
        PolarFL(build_model(), local_steps=0)
    with pytest.raises(ConfigError, match="group norm"):
        PolarFL(nn.BatchNorm1d(3), local_steps=1)
    with pytest.raises(ConfigError, match="no parameter that needs a gradient"):
        PolarFL(build_model().requires_grad_(False), local_steps=1)
    with pytest.raises(ConfigError, match="have no 'weight'"):
        PolarFL(build_model(), local_steps=1).start(cast("Any", Answering(app, 2)), ArrayRecord())
