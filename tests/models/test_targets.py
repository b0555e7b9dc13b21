"""Outputs and targets fit each other before training, or an error says how to make them fit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as f

import tunefree
from tunefree.errors import ConfigError
from tunefree.run.run import Run

RNG = torch.Generator().manual_seed(0)
X = [torch.randn(21, 3, generator=RNG) for _ in range(4)]  # a last batch of one sample
REAL = [x @ torch.tensor([1.0, 2.0, -1.0]) for x in X]
LABELS = [x.argmax(dim=1) for x in X]
BINARY = [y > 0 for y in REAL]
COUNTS = [y.exp().clamp(max=20).round().long() for y in REAL]


class Flat(nn.Linear):
    """One output, squeezed away."""

    def __init__(self) -> None:
        super().__init__(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).squeeze()


def one() -> nn.Module:
    return nn.Linear(3, 1)


def three() -> nn.Module:
    return nn.Linear(3, 3)


def fit(model: Callable[[], nn.Module], targets: list[torch.Tensor], **settings: Any) -> Run:
    torch.manual_seed(0)
    clients = list(zip(X, targets, strict=True))
    settings = {"rounds": 40, "batch_size": 10, "eval_every": 40} | settings
    return tunefree.train(model(), clients, clients[0], progress=False, **settings)


def both(change: Callable[[torch.Tensor], torch.Tensor], of: list[torch.Tensor]) -> list[Any]:
    return [change(y) for y in of]


def column(y: torch.Tensor) -> torch.Tensor:
    return y.unsqueeze(1)


@pytest.mark.parametrize("model", [one, Flat])
@pytest.mark.parametrize("targets", [REAL, both(column, REAL)], ids=["(n,)", "(n, 1)"])
def test_regression_with_one_output_learns_whatever_the_shapes(
    model: Callable[[], nn.Module], targets: list[torch.Tensor]
) -> None:
    run = fit(model, targets)
    assert run.history[-1]["loss"] < 0.01 * run.history[0]["loss"]
    assert "accuracy" not in run.history[-1]


@pytest.fixture(scope="module")
def plain() -> Run:
    return fit(three, LABELS)


def one_hot(y: torch.Tensor) -> torch.Tensor:
    return f.one_hot(y, 3)


@pytest.mark.parametrize(
    "targets",
    [
        both(column, LABELS),
        both(torch.Tensor.int, LABELS),
        both(torch.Tensor.float, LABELS),
        both(lambda y: column(y).double(), LABELS),
        both(one_hot, LABELS),
        both(lambda y: one_hot(y).float(), LABELS),
    ],
    ids=["(n, 1)", "int32", "floats", "floats (n, 1)", "one-hot", "one-hot floats"],
)
def test_labels_are_known_in_every_form(targets: list[torch.Tensor], plain: Run) -> None:
    run = fit(three, targets)
    assert run.theta_sha256 == plain.theta_sha256
    assert run.history[-1]["accuracy"] == plain.history[-1]["accuracy"] > 0.9


def test_booleans_are_labels_of_two_classes() -> None:
    assert fit(lambda: nn.Linear(3, 2), BINARY).history[-1]["accuracy"] > 0.9


@pytest.mark.parametrize(
    "loss",
    [
        nn.BCEWithLogitsLoss(),
        f.binary_cross_entropy_with_logits,
        partial(f.binary_cross_entropy_with_logits, pos_weight=torch.tensor(1.0)),
    ],
    ids=["module", "function", "partial"],
)
@pytest.mark.parametrize("model", [one, Flat])
def test_two_classes_with_one_output(model: Callable[[], nn.Module], loss: Any) -> None:
    run = fit(model, BINARY, loss=loss)
    assert run.history[-1]["loss"] < 0.5 * run.history[0]["loss"]
    assert run.history[-1]["accuracy"] > 0.9


def squeezed(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return f.poisson_nll_loss(out.squeeze(1), y)


def test_counts_with_a_loss_of_torch_or_of_ones_own() -> None:
    run = fit(one, COUNTS, loss=nn.PoissonNLLLoss())
    assert run.history[-1]["loss"] < run.history[0]["loss"] - 1
    assert run.theta_sha256 == fit(one, COUNTS, loss=squeezed).theta_sha256
    assert run.theta_sha256 == fit(one, both(column, COUNTS), loss=f.poisson_nll_loss).theta_sha256


def test_soft_labels_with_a_given_loss() -> None:
    soft = [torch.softmax(3 * x, dim=1) for x in X]
    classes = fit(three, soft, loss=f.cross_entropy)
    numbers = fit(three, soft, loss=f.mse_loss)
    assert classes.history[-1]["loss"] < classes.history[0]["loss"]
    assert numbers.history[-1]["loss"] < 0.5 * numbers.history[0]["loss"]
    assert classes.theta_sha256 != numbers.theta_sha256


def test_a_classifiers_own_loss_still_has_accuracy() -> None:
    def focal(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        p = torch.softmax(out, dim=1).gather(1, column(y))
        return (-((1 - p) ** 2) * p.log()).mean()

    assert fit(three, LABELS, loss=focal).history[-1]["accuracy"] > 0.9
    smooth = fit(three, both(column, LABELS), loss=nn.CrossEntropyLoss(label_smoothing=0.1))
    assert smooth.history[-1]["accuracy"] > 0.9


class Learned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return f.cross_entropy(self.scale * out, y)


BAD: list[tuple[Callable[[], nn.Module], list[torch.Tensor], Any, str]] = [
    (one, BINARY, None, r"y.float\(\); for two classes pass .*BCEWithLogitsLoss\(\), or give"),
    (Flat, LABELS, None, "whole numbers and the model has one output: for regression give"),
    (one, both(column, LABELS), nn.CrossEntropyLoss(), "the model has one output"),
    (three, REAL, None, r"targets have shape \(\) .*outputs have shape \(3,\); give the model as"),
    (three, REAL, f.mse_loss, r"targets have shape \(\) for each sample and the model's outputs"),
    (lambda: nn.Linear(3, 2), X, None, r"targets have shape \(3,\) .* have shape \(2,\)"),
    (three, [(x > 0).long() for x in X], None, "whole numbers of shape .*pass the loss you mean"),
    (three, [torch.softmax(x, 1) for x in X], None, "add up to one: pass .*cross_entropy"),
    (one, REAL, lambda out, y: ((out - y) ** 2).mean(), "the loss mixes samples.*unsqueeze"),
    (one, REAL, lambda out, y: ((out - y) ** 2).sum(), "the loss mixes samples"),
    (lambda: nn.Linear(3, 2), both(torch.Tensor.float, LABELS), None, "has label 2, but the 2"),
    (three, LABELS, nn.CrossEntropyLoss, r"loss is the class CrossEntropyLoss; give loss=Cross"),
    (three, LABELS, "cross_entropy", "loss = 'cross_entropy' is not a function; give one"),
    (three, LABELS, Learned(), "loss = Learned has trainable parameters"),
    (lambda: nn.Sequential(three(), nn.Flatten(0)), LABELS, None, "first axis must be the sam"),
]


@pytest.mark.parametrize(("model", "targets", "loss", "sentence"), BAD)
def test_ambiguous_targets_are_refused_before_training(
    model: Callable[[], nn.Module], targets: list[torch.Tensor], loss: Any, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence) as error:
        fit(model, targets, loss=loss)
    assert "\n" not in str(error.value)


def test_a_test_set_that_means_something_else_is_refused() -> None:
    clients = [(x, y.float()) for x, y in zip(X, LABELS, strict=True)]
    with pytest.raises(ConfigError, match=r"the targets are labels, except 2.5; give only"):
        tunefree.train(three(), clients, (X[0], LABELS[0] + 0.5), progress=False)
