"""What cannot be used is refused in one sentence that a newcomer understands."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as f

import tunefree
from tunefree.errors import ConfigError, WireError

RNG = torch.Generator().manual_seed(0)
X = [torch.randn(20, 3, generator=RNG) for _ in range(4)]
CLIENTS = [(x, x.argmax(dim=1)) for x in X]
SETTINGS: dict[str, Any] = {"rounds": 1, "local_steps": 2, "progress": False}


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.to(torch.complex64) @ self.weight).real


class Views(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(3, 3)

    def forward(self, one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.dense(one) + self.dense(two)
        return answer


def like(change: Any) -> list[Any]:
    return [change(x, y) for x, y in CLIENTS]


def model() -> nn.Module:
    return nn.Linear(3, 3)


BAG = nn.Sequential(nn.EmbeddingBag(10, 4, sparse=True), nn.Linear(4, 3))
PIXELS = [(torch.randn(6, 1, 4, 4), torch.randint(3, (6, 4, 4))) for _ in range(3)]
WORDS = [(torch.randint(9, (6, 5)), torch.randint(9, (6, 5))) for _ in range(3)]
LANGUAGE = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9))

BAD: dict[str, tuple[nn.Module, list[Any], dict[str, Any], str]] = {
    "sparse embedding": (BAG, CLIENTS, {}, "layer '0' has sparse gradients.*sparse=False"),
    "sparse inputs": (
        model(), like(lambda x, y: (x.to_sparse(), y)), {}, r"client 0 has a sparse .*to_dense\(\)",
    ),
    "complex parameter": (Complex(), CLIENTS, {}, r"parameter 'weight' is complex.*view_as_real"),
    "complex inputs": (
        model(), like(lambda x, y: (x.to(torch.complex64), y)), {}, "give real numbers, torch.view",
    ),
    "loss is a dict": (
        model(), CLIENTS, {"loss": lambda out, y: {"loss": f.cross_entropy(out, y)}},
        "the loss returned a dict, not a tensor; it must be one number.*return the tensor alone",
    ),
    "loss is a number": (
        model(), CLIENTS, {"loss": lambda out, y: f.cross_entropy(out, y).item()},
        r"the loss returned a float, not a tensor.*without .item\(\)",
    ),
    "loss is detached": (
        model(), CLIENTS, {"loss": lambda out, y: f.cross_entropy(out, y).detach()},
        r"does not require grad.*compute the loss from the outputs without .detach\(\)",
    ),
    "views in items": (
        Views(), [[([a, a], b) for a, b in zip(x, y, strict=True)] for x, y in CLIENTS], {},
        r"missing 1 required positional argument.*several inputs are a tuple, \(\(a, b\), y\)",
    ),
    "views in a pair": (
        Views(), like(lambda x, y: ([x, x], y)), {},
        r"has 2 inputs but 20 targets.*several inputs gets them as a tuple, \(\(a, b\), y\)",
    ),
    "segmentation": (
        nn.Conv2d(1, 3, 1), PIXELS, {},
        r"one for each of \(4, 4\) places: if they are classes, pass loss=torch.nn.Cross",
    ),
    "language": (LANGUAGE, WORDS, {}, r"last axis may be classes: if so.*outputs.movedim\(-1, 1\)"),
    "without a label": (
        model(), like(lambda x, y: (x, torch.where(y == 1, -100, y))), {},
        "has label -100, but the 3 classes are labelled 0 to 2; drop samples without a label",
    ),
    "another device": (model(), CLIENTS, {"device": "mps"}, "device = 'mps' cannot be used here"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_it_is_said_what_is_wrong_and_what_to_do(case: str) -> None:
    if case == "another device" and torch.backends.mps.is_available():
        pytest.skip("it can be used here")
    module, clients, settings, sentence = BAD[case]
    with pytest.raises(ConfigError, match=sentence) as error:
        tunefree.train(module, clients, **SETTINGS, **settings)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


def test_the_losses_that_are_suggested_work() -> None:
    def loss(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return f.cross_entropy(outputs.movedim(-1, 1), y)

    tunefree.train(LANGUAGE, WORDS, loss=loss, **SETTINGS)
    tunefree.train(nn.Conv2d(1, 3, 1), PIXELS, loss=nn.CrossEntropyLoss(), **SETTINGS)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torchscript_is_named() -> None:
    traced = torch.jit.trace(nn.Linear(3, 3), X[0])  # type: ignore[no-untyped-call]
    with pytest.raises(ConfigError, match=r"compiled by TorchScript.*before torch.jit.script"):
        tunefree.train(traced, CLIENTS, **SETTINGS)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_training_without_gradients_is_named(mode: Any) -> None:
    with mode(), pytest.raises(ConfigError, match=r"inside torch.no_grad\(\) or torch.inference"):
        tunefree.train(model(), CLIENTS, **SETTINGS)


def test_a_loaded_model_needs_no_gradients(tmp_path: Any) -> None:
    run = tunefree.train(model(), CLIENTS, out=tmp_path / "a.sqlite", **SETTINGS)
    with torch.no_grad():
        assert torch.equal(tunefree.load(tmp_path / "a.sqlite", model())(X[0]), run.model(X[0]))


class Log(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x[:, :1].log() + x)


def test_the_client_with_nan_is_named() -> None:
    clients = like(lambda x, y: (torch.cat([x[:, :1].abs() + 0.1, x[:, 1:]], dim=1), y))
    clients[2][0][:, 0] = -1
    with pytest.raises(WireError, match="the loss of client 2 is not finite, while that of the"):
        tunefree.train(Log(3, 3), clients, **SETTINGS)
    clients[3][0][:, 0] = -1
    with pytest.raises(WireError, match="client 2 is not finite, and those of 1 other clients"):
        tunefree.train(Log(3, 3), clients, **SETTINGS)
