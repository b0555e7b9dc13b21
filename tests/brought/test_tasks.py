"""What is to be learned is never guessed from a part of it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as f
from torch.utils.data import Dataset

import tunefree
from tunefree.data.clients import federation_from
from tunefree.errors import ConfigError

RNG = torch.Generator().manual_seed(0)
X = [torch.randn(40, 3, generator=RNG) for _ in range(3)]
SETTINGS: dict[str, Any] = {"rounds": 2, "local_steps": 2, "progress": False}


class OneAugmented(Dataset[Any]):
    """Sorted by class; noise is added to a single class."""

    def __init__(self, draw: Any, which: int, n: int = 100) -> None:
        self.targets = [i * 4 // n for i in range(n)]
        self.draw, self.which = draw, which
        self.x = torch.randn(n, 3, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        noise = self.draw() if self.targets[i] == self.which else 0.0
        return self.x[i] + noise, self.targets[i]


DRAWS = [lambda: torch.randn(()), lambda: random.gauss(0, 1), lambda: np.random.randn()]  # noqa: NPY002


@pytest.mark.parametrize("draw", DRAWS, ids=["torch", "python", "numpy"])
@pytest.mark.parametrize("which", [0, 3])
def test_a_single_augmented_class_is_seen(draw: Any, which: int) -> None:
    assert federation_from([OneAugmented(draw, which)]).train.random


class Rarely(OneAugmented):
    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return self.x[i] + (self.draw() if i == 17 else 0.0), self.targets[i]


class InVain(OneAugmented):
    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        self.draw()
        return self.x[i], self.targets[i]


def test_one_augmented_sample_is_seen_and_what_draws_in_vain_stays_in_memory() -> None:
    samples = federation_from([Rarely(DRAWS[0], 0)]).train
    assert samples.random
    first, other = (samples.batch(np.array([16, 17]), seed=seed)[0] for seed in (0, 1))
    assert torch.equal(first[0], other[0])
    assert not torch.equal(first[1], other[1])
    assert not federation_from([InVain(DRAWS[0], 0)]).train.lazy


class TwoHeads(nn.Module):
    def __init__(self, form: str = "tuple") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.one, self.two = nn.Linear(3, 4), nn.Linear(4, 3), nn.Linear(4, 2)
        self.form = form

    def forward(self, x: torch.Tensor) -> Any:
        hidden = self.body(x).relu()
        both = self.one(hidden), self.two(hidden)
        if self.form == "dict":
            return {"logits": both[0], "aside": both[1]}
        return both if self.form == "tuple" else (both[0], hidden)


LABELS = [(x, x.argmax(dim=1)) for x in X]


@pytest.mark.parametrize("loss", [None, nn.CrossEntropyLoss()])
@pytest.mark.parametrize("form", ["tuple", "dict"])
def test_a_head_that_no_loss_reaches_is_refused(form: str, loss: Any) -> None:
    with pytest.raises(ConfigError, match="returns 2 outputs and the loss gets only one, so that "
                       "'two.weight' would not be trained"):  # fmt: skip
        tunefree.train(TwoHeads(form), LABELS, loss=loss, **SETTINGS)


def test_both_heads_train_with_a_loss_of_both_and_features_need_none() -> None:
    def loss(outputs: Any, y: torch.Tensor) -> torch.Tensor:
        return f.cross_entropy(outputs[0], y[:, 0]) + f.cross_entropy(outputs[1], y[:, 1])

    clients = [(x, torch.stack([y, y % 2], dim=1)) for x, y in LABELS]
    model = TwoHeads()
    run = tunefree.train(model, clients, loss=loss, **SETTINGS)
    trained: Any = run.model
    assert not torch.equal(trained.one.weight, model.one.weight)
    assert not torch.equal(trained.two.weight, model.two.weight)
    with torch.no_grad():
        expected = [float(loss(run.model(x), y)) for x, y in clients]
    assert [row["loss"] for row in run.client_scores()] == pytest.approx(expected, rel=1e-5)
    tunefree.train(TwoHeads("features"), LABELS, **SETTINGS)


class Lightning(nn.Linear):
    """The interface of a LightningModule."""

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        return f.cross_entropy(self(batch[0]), batch[1], label_smoothing=0.5)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_of_a_lightning_module_it_is_said_what_is_used() -> None:
    with pytest.raises(ConfigError, match="training_step.*only its forward is used: pass the loss"):
        tunefree.train(Lightning(3, 3), LABELS, **SETTINGS)
    run = tunefree.train(Lightning(3, 3), LABELS, loss=nn.CrossEntropyLoss(), **SETTINGS)
    assert "not used: the model's training_step and optimiser" in run.summary()
    assert "training_step" not in tunefree.train(nn.Linear(3, 3), LABELS, **SETTINGS).summary()


@pytest.mark.parametrize("outputs", [1, 3])
def test_zeros_and_ones_are_classes_or_numbers_only_if_the_loss_says_so(outputs: int) -> None:
    clients = [(x, (x[:, :outputs] > 0).float()) for x in X]
    with pytest.raises(ConfigError, match="only 0 and 1: .*BCEWithLogitsLoss.*for numbers"):
        tunefree.train(nn.Linear(3, outputs), clients, **SETTINGS)
    for loss in (nn.BCEWithLogitsLoss(), nn.MSELoss()):
        run = tunefree.train(nn.Linear(3, outputs), clients, loss=loss, **SETTINGS)
        with torch.no_grad():
            expected = [float(loss(run.model(x), y)) for x, y in clients]
        assert [row["loss"] for row in run.client_scores()] == pytest.approx(expected, rel=1e-5)
