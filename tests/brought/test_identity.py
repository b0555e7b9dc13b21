"""A stored run refuses another frozen part, other layers and another loss, and says which."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as f

import tunefree
from tunefree.errors import ConfigError

RNG = torch.Generator().manual_seed(0)
X = [torch.randn(20, 3, generator=RNG) for _ in range(3)]
CLIENTS = [(x, x.argmax(dim=1)) for x in X]


def frozen(seed: int, buffer: float = 0.0) -> nn.Module:
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3))
    torch.manual_seed(seed)
    model[0] = nn.Linear(3, 8).requires_grad_(False)
    model.register_buffer("table", torch.tensor(buffer))
    return model


def train(model: nn.Module, path: Path, **more: Any) -> Any:
    return tunefree.train(model, CLIENTS, rounds=2, out=path, progress=False, **more)


def resumed(path: Path, model: nn.Module, **more: Any) -> Any:
    return tunefree.resume(path, model, CLIENTS, rounds=4, progress=False, **more)


@pytest.mark.parametrize("other", [frozen(1), frozen(0, 1.0)], ids=["weights", "buffer"])
def test_load_refuses_another_frozen_part(other: nn.Module, tmp_path: Path) -> None:
    run = train(frozen(0), tmp_path / "a.sqlite")
    loaded = tunefree.load(tmp_path / "a.sqlite", frozen(0))
    assert torch.equal(loaded(X[0]), run.model(X[0]))
    with pytest.raises(ConfigError, match="its frozen part .* was .*, and now it is .*; give the"):
        tunefree.load(tmp_path / "a.sqlite", other)


def weighted(weights: torch.Tensor) -> Callable[..., torch.Tensor]:
    def loss(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return f.cross_entropy(out, y, weight=weights)

    return loss


ONE, TWO = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([9.0, 2.0, 3.0])


@pytest.mark.parametrize(
    "make",
    [
        nn.CrossEntropyLoss,
        lambda w: partial(f.cross_entropy, weight=w),
        lambda w: nn.CrossEntropyLoss(label_smoothing=float(w[0]) / 10),
        weighted,
        lambda w: weighted(w.repeat(7)[:3]),
    ],
    ids=["module", "partial", "smoothing", "closure", "closure 2"],
)
def test_a_loss_has_the_parameters_it_had(make: Any, tmp_path: Path) -> None:
    train(frozen(0), tmp_path / "a.sqlite", loss=make(ONE))
    with pytest.raises(ConfigError, match="its loss.* was .*, and now it is"):
        resumed(tmp_path / "a.sqlite", frozen(0), loss=make(TWO))
    assert resumed(tmp_path / "a.sqlite", frozen(0), loss=make(ONE.clone())).record.state == "done"


class Activated(nn.Module):
    def __init__(self, activation: Any, hidden: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two, self.activation = nn.Linear(3, hidden), nn.Linear(hidden, 3), activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.two(self.activation(self.one(x)))
        return answer


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (Activated(torch.tanh), "its model was Activated.* activation = relu, .*activation = tanh"),
        (Activated(torch.relu, 5), "its model was .*out_features=4.*and now it is .*features=5"),
    ],
)
def test_another_model_is_named_as_such(other: nn.Module, sentence: str, tmp_path: Path) -> None:
    train(Activated(torch.relu), tmp_path / "a.sqlite")
    with pytest.raises(ConfigError, match=sentence) as error:
        resumed(tmp_path / "a.sqlite", other)
    assert len(str(error.value)) < 600


def test_a_loss_that_was_not_given_again_is_named_as_such(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))  # has kernels of its own
    train(model, tmp_path / "a.sqlite", loss=nn.CrossEntropyLoss())
    with pytest.raises(ConfigError, match=r"its loss was CrossEntropyLoss.*now it is cross"):
        resumed(tmp_path / "a.sqlite", model)
