"""Parts of a model that stay with clients: as plain torch computes them, on any fleet, resumed."""

from __future__ import annotations

import copy
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tunefree
from tunefree.derive import state_dict
from tunefree.errors import ConfigError
from tunefree.methods import FedAvg
from tunefree.models import group_norm
from tunefree.record import Record
from tunefree.run.files import client_scores
from tunefree.run.run import prepare
from tunefree.settings import load

RNG = torch.Generator().manual_seed(0)
CLIENTS = [
    (torch.randn(n, 4, generator=RNG) + shift, torch.randint(3, (n,), generator=RNG))
    for shift, n in enumerate((12, 9, 15))
]
USUAL: dict[str, Any] = {"rounds": 3, "local_steps": 2, "progress": False, "fleet": "serial"}


class Net(nn.Module):
    def __init__(self, batch_norm: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        norm = nn.BatchNorm1d(5) if batch_norm else nn.Identity()
        self.body = nn.Sequential(nn.Linear(4, 5), norm, nn.Tanh())
        self.head = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.head(self.body(x))
        return answer


def train(model: nn.Module, **more: Any) -> Any:
    return tunefree.train(model, CLIENTS, CLIENTS[0], **USUAL | more)


def by_hand(
    model: nn.Module, shared: list[str], eta: float, rounds: int, K: int
) -> list[nn.Module]:
    """FedAvg with full batches in plain torch; what is not shared moves by our rule."""
    models = [copy.deepcopy(model) for _ in CLIENTS]
    units = {name: float(p.detach().norm()) for name, p in model.named_parameters()}
    if "body.1.bias" in units:  # starts at zero: the others' median length for its size
        sizes = {name: p.numel() for name, p in model.named_parameters()}
        spreads = sorted(units[n] / sizes[n] ** 0.5 for n in units if units[n] > 0)
        units["body.1.bias"] = spreads[len(spreads) // 2] * sizes["body.1.bias"] ** 0.5
    for j in range(rounds):
        path = max(1, (K / 10) ** 0.5) * K**0.25 / (j + 10) ** 0.75
        for mine, (x, y) in zip(models, CLIENTS, strict=True):
            for _ in range(K):
                mine.zero_grad()
                torch.autograd.backward(nn.functional.cross_entropy(mine(x), y))
                with torch.no_grad():
                    for name, p in mine.named_parameters():
                        assert p.grad is not None
                        step = eta if name in shared else path / K * units[name] / p.grad.norm()
                        p.sub_(step * p.grad)
        for name in shared:
            average = torch.stack([mine.get_parameter(name).detach() for mine in models]).mean(0)
            for mine in models:
                mine.get_parameter(name).data.copy_(average)
    return [mine.eval() for mine in models]


BODY = ["body.0.weight", "body.0.bias"]
NORM = ["body.1.weight", "body.1.bias"]
HEAD = ["head.weight", "head.bias"]
CASES: dict[str, tuple[bool, dict[str, Any], list[str]]] = {
    "statistics": (True, {"batch_norm": "statistics"}, BODY + NORM + HEAD),
    "batch norm": (True, {"batch_norm": "local"}, BODY + HEAD),
    "head": (False, {"local": ["head"]}, BODY),
    "bias of the head": (False, {"local": "head.bias"}, [*BODY, "head.weight"]),
    "both": (True, {"batch_norm": "local", "local": ["head"]}, BODY),
}


@pytest.mark.parametrize("case", CASES)
def test_every_client_has_the_model_that_plain_torch_gives(case: str) -> None:
    batch_norm, settings, shared = CASES[case]
    expected = by_hand(Net(batch_norm), shared, eta=0.3, rounds=3, K=2)
    run = train(Net(batch_norm), algorithm=FedAvg(eta=0.3), batch_size=20, **settings)
    assert run.theta.numel() == sum(expected[0].get_parameter(name).numel() for name in shared)
    for client, model in enumerate(expected):
        found = run.model_of(client).state_dict()
        for name, each in model.state_dict().items():
            torch.testing.assert_close(found[name], each, rtol=1e-4, atol=1e-5, msg=name)
    scores = [  # on each client's data with its own part, on the test set with their mean
        float(nn.functional.cross_entropy(model(x), y).detach())
        for model, (x, y) in zip(expected, CLIENTS, strict=True)
    ]
    assert [row["loss"] for row in run.client_scores()] == pytest.approx(scores, rel=1e-4)
    assert run.history[-1]["train_loss"] == pytest.approx(sum(scores) / 3, rel=1e-4)
    mean = copy.deepcopy(expected[0])
    for name, each in mean.state_dict().items():
        values = [model.state_dict()[name].double() for model in expected]
        each.copy_(torch.stack(values).mean(0))
    (x, y), found = CLIENTS[0], run.model.state_dict()
    for name, each in mean.state_dict().items():
        torch.testing.assert_close(found[name], each, rtol=1e-4, atol=1e-5, msg=name)
    loss = float(nn.functional.cross_entropy(mean(x), y).detach())
    assert run.history[-1]["loss"] == pytest.approx(loss, rel=1e-4)
    torch.testing.assert_close(run.predict(x, client=1), expected[1](x), rtol=1e-4, atol=1e-5)


def parts(run: Any) -> list[torch.Tensor]:
    models = [run.model_of(client).state_dict() for client in range(3)]
    return [each for state in models for each in state.values()]


@pytest.mark.parametrize("algorithm", ["polarfl", "scaffold", "fedprox"])
def test_the_same_bits_on_the_pool_and_after_an_interruption(
    algorithm: str, tmp_path: Path
) -> None:
    settings = {"algorithm": algorithm, "batch_norm": "local", "local": ["head"], "batch_size": 4}
    whole = train(Net(), **settings, rounds=4)
    assert whole.theta.numel() == 25
    file = tmp_path / "a.sqlite"
    run = tunefree.Run(Net(), CLIENTS, CLIENTS[0], **USUAL | settings | {"rounds": 4}, out=file)
    for row in run:
        if row["round"] == 2:
            break
    again = tunefree.resume(file, Net(), CLIENTS, CLIENTS[0], progress=False)
    pool = train(Net(), **settings | {"fleet": "pool", "workers": 2, "rounds": 4})
    for other in (again, pool):
        assert other.theta_sha256 == whole.theta_sha256
        assert all(map(torch.equal, parts(other), parts(whole)))
        assert other.history[-1]["loss"] == whole.history[-1]["loss"]
    assert not torch.equal(*(whole.model_of(client).head.weight for client in (0, 1)))
    assert torch.equal(*(whole.model_of(client).body[0].weight for client in (0, 1)))
    for client in (None, 1):
        loaded = tunefree.load(file, Net(), client=client).state_dict()
        expected = whole.model if client is None else whole.model_of(client)
        assert all(torch.equal(loaded[name], v) for name, v in expected.state_dict().items())
    pair = (again.best.state_dict(), tunefree.load(file, Net(), best=True).state_dict())
    assert all(map(torch.equal, *(state.values() for state in pair)))
    assert "stays with each client: 39 numbers (body.1.weight" in again.summary()


def test_a_last_batch_of_one_sample_is_left_to_the_next_pass() -> None:
    run = train(Net(), batch_norm="local", batch_size=4, local_epochs=1, local_steps=None)
    assert run.history[-1]["round"] == 3  # 9 = 4 + 4 + 1
    lone = [(CLIENTS[0][0][:1], CLIENTS[0][1][:1]), *CLIENTS[1:]]
    with pytest.raises(ConfigError, match="client 0 has a single sample, and batch norm needs two"):
        tunefree.train(Net(), lone, batch_norm="local", **USUAL)
    with pytest.raises(ConfigError, match="batch_size = 1 is too small for batch norm"):
        train(Net(), batch_norm="local", batch_size=1)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, r"batch_norm = local \(FedBN\), convert it, .*group_norm\(model\)"),
    ({"local": ["haed"], "batch_norm": "local"}, "'haed' is not known; did you mean 'head'"),
    ({"local": ["body", "head"], "batch_norm": "local"}, "nothing to train together"),
    ({"batch_norm": "local", "kernels": "batch-minor"}, "no part stays with clients"),
    ({"batch_norm": "local", "privacy": tunefree.Privacy(epsilon=8)}, "parts that clients keep"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_what_cannot_be_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        train(Net(), **settings)


def test_batch_norm_is_only_for_models_that_have_it() -> None:
    with pytest.raises(ConfigError, match="no layer of this one keeps running statistics; omit it"):
        train(Net(batch_norm=False), batch_norm="local")


@pytest.mark.parametrize(("channels", "groups"), [(3, 1), (8, 2), (10, 2), (128, 32), (256, 32)])
def test_group_norm_has_the_weights_of_batch_norm(channels: int, groups: int) -> None:
    model = nn.Sequential(nn.Conv2d(1, channels, 3), nn.BatchNorm2d(channels), nn.Flatten())
    nn.init.uniform_(model.get_parameter("1.weight"))
    nn.init.uniform_(model.get_parameter("1.bias"))
    given = copy.deepcopy(model).state_dict()
    new, x = group_norm(model), torch.randn(2, 1, 5, 5)
    weights = given["1.weight"], given["1.bias"]
    expected = nn.functional.group_norm(model[0](x), groups, *weights).flatten(1)
    torch.testing.assert_close(new(x), expected)
    assert all(torch.equal(each, given[name]) for name, each in model.state_dict().items())
    tunefree.train(group_norm(Net()), CLIENTS, **USUAL)


def test_on_the_command_line_it_is_a_text_and_an_export_has_the_mean(tmp_path: Path) -> None:
    assert load(None, {"local": ["a", "b.0"]}) == load(None, {"local": "a,b.0"})
    file = tmp_path / "a.sqlite"
    small = {"clients": 5, "rounds": 2, "local_steps": 2, "fleet": "serial", "out": str(file)}
    run = prepare(load(None, {"model": "mlp", "local": "3", **small})).finish()
    assert run.theta.numel() == 65 * 64
    with closing(Record.open(file)) as record:
        exported = state_dict(record)
    for name, each in run.model.state_dict().items():
        assert torch.equal(torch.from_numpy(exported[name]), each), name
    loaded, own = (
        model.get_parameter("3.bias") for model in (tunefree.load(file, client=1), run.model_of(1))
    )
    assert torch.equal(loaded, own)
    rows = client_scores(file)
    assert [row["loss"] for row in rows] == [row["loss"] for row in run.client_scores()]
