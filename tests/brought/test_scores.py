"""A reported loss is what the user's loss gives on all samples at once, as plain torch computes."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as f

import tunefree
from tunefree.run import evaluate
from tunefree.run.run import Run

RNG = torch.Generator().manual_seed(0)
SIZES = (250, 430, 17)  # samples of the clients: several batches, of which the last is smaller
X = [torch.randn(n, 3, generator=RNG) for n in SIZES]
LABELS = [(2 * x).argmax(dim=1) for x in X]
TIMES = [x.sum(dim=1, keepdim=True).exp() for x in X]
MAPS = [torch.randn(n, 3, 2, 2, generator=RNG) for n in SIZES]
PIXELS = [torch.where(x[:, 0] > 1, -100, x.argmax(dim=1)) for x in MAPS]
WEIGHTS = torch.tensor([1.0, 5.0, 20.0])


def cox(risk: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
    """The partial likelihood, for which samples are compared with one another."""
    ordered = risk.flatten()[time.flatten().argsort(descending=True)]
    loss: torch.Tensor = (ordered.logcumsumexp(0) - ordered).mean()
    return loss


def on_parts(answer: dict[str, Any], y: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = (answer["both"][0].mean() - y.float().mean()) ** 2 + answer["logits"].var()
    return loss


class Wrapped(nn.Linear):
    def forward(self, x: torch.Tensor) -> Any:
        out = super().forward(x)
        return {"logits": out, "both": (out, x)}


def dense(outputs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, outputs)


CASES: dict[str, tuple[nn.Module, Any, Any, Any]] = {
    "plain": (dense(), X, LABELS, nn.CrossEntropyLoss()),
    "weights": (dense(), X, LABELS, nn.CrossEntropyLoss(WEIGHTS)),
    "weights, smooth": (dense(), X, LABELS, nn.CrossEntropyLoss(WEIGHTS, label_smoothing=0.1)),
    "weights, function": (dense(), X, LABELS, partial(f.cross_entropy, weight=WEIGHTS)),
    "nll": (nn.Sequential(dense(), nn.LogSoftmax(1)), X, LABELS, nn.NLLLoss(WEIGHTS)),
    "ignored": (dense(), X, LABELS, nn.CrossEntropyLoss(ignore_index=2)),
    "ignored pixels": (nn.Conv2d(3, 3, 1), MAPS, PIXELS, nn.CrossEntropyLoss()),
    "sum": (dense(), X, LABELS, nn.CrossEntropyLoss(reduction="sum")),
    "squares": (dense(), X, X, nn.MSELoss(reduction="sum")),
    "cox": (dense(1), X, TIMES, cox),
    "answers in a dict": (Wrapped(3, 3), X, LABELS, on_parts),
}


def fit(case: str) -> Run:
    model, x, y, loss = CASES[case]
    clients = list(zip(x, y, strict=True))
    test = (torch.cat(x), torch.cat(y))
    return tunefree.train(model, clients, test, loss=loss, rounds=2, local_steps=2, progress=False)


@pytest.mark.parametrize("case", CASES)
def test_losses_are_those_of_all_samples_at_once(case: str) -> None:
    _, x, y, loss = CASES[case]
    run = fit(case)
    model = run.model
    with torch.no_grad():
        whole = float(loss(model(torch.cat(x)), torch.cat(y)))
        each = [float(loss(model(xi), yi)) for xi, yi in zip(x, y, strict=True)]
    assert run.history[-1]["loss"] == pytest.approx(whole, rel=1e-5)
    assert [row["loss"] for row in run.client_scores()] == pytest.approx(each, rel=1e-5)
    assert run.history[-1]["train_loss"] == pytest.approx(sum(each) / 3, rel=1e-5)


def test_answers_that_exceed_memory_are_scored_in_parts_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluate, "AT_ONCE", 4 * 450)  # two batches of one output each
    with pytest.warns(UserWarning, match="loss is computed on parts of"):
        run = fit("cox")
    x, times = torch.cat(X), torch.cat(TIMES)
    with torch.no_grad():
        parts = [float(cox(run.model(x[at]), times[at])) for at in (slice(600), slice(600, 697))]
    expected = (600 * parts[0] + 97 * parts[1]) / 697
    assert run.history[-1]["loss"] == pytest.approx(expected, rel=1e-5)


def test_answers_that_cannot_be_joined_are_scored_batch_by_batch_and_it_is_said() -> None:
    class Penalised(nn.Linear):
        def forward(self, x: torch.Tensor) -> Any:
            return super().forward(x), self.weight.square().sum()

    def loss(answer: Any, y: torch.Tensor) -> torch.Tensor:
        penalised: torch.Tensor = f.cross_entropy(answer[0], y) + answer[1]
        return penalised

    clients = list(zip(X, LABELS, strict=True))
    with pytest.warns(UserWarning, match="cannot be joined, so the loss is computed on each 200"):
        run = tunefree.train(Penalised(3, 3), clients, loss=loss, rounds=1, progress=False)
    with torch.no_grad():
        each = [float(loss(run.model(x), y)) for x, y in clients]
    assert run.history[-1]["train_loss"] == pytest.approx(sum(each) / 3, rel=1e-5)


class OwnLoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, Any]:
        out = self.dense(x)
        more = {} if labels is None else {"loss": f.cross_entropy(out, labels)}
        return {"logits": out, **more}


def test_of_a_models_own_loss_it_is_said_how_it_is_computed() -> None:
    clients = list(zip(X, LABELS, strict=True))
    run = tunefree.train(OwnLoss(), clients, rounds=1, progress=False)
    assert "losses are the model's own, means over batches of 200" in run.summary()
