"""Numbers far from 1 are noticed; standardised, they are learned, in their own units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tunefree
from tunefree.errors import ConfigError
from tunefree.methods import FedAvg
from tunefree.models.scaling import Standardised

RNG = torch.Generator().manual_seed(0)
X = [torch.randn(n, 3, generator=RNG) for n in (20, 60, 30)]
ROOMS = [x @ torch.tensor([1.0, 2.0, -1.0]) / 6**0.5 for x in X]
PRICES = [3e5 + 1e5 * y for y in ROOMS]
IDS = [torch.cat([x, 1e6 + 3e5 * x[:, :1].abs()], dim=1) for x in X]
SETTINGS: dict[str, Any] = {"rounds": 40, "eval_every": 40, "progress": False, "fleet": "serial"}


def dense(inputs: int = 3, outputs: int = 1) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(inputs, outputs)


def fit(x: list[Any], y: list[torch.Tensor], model: nn.Module, **more: Any) -> Any:
    clients = list(zip(x, y, strict=True))
    return tunefree.train(model, clients, clients[1], **SETTINGS | more)


def explained(model: nn.Module, x: list[torch.Tensor], y: list[torch.Tensor]) -> float:
    with torch.no_grad():
        out = model(torch.cat(x)).squeeze(1)
    return 1 - float((out - torch.cat(y)).square().mean() / torch.cat(y).var())


FAR: list[tuple[Any, Any, str]] = [
    (X, PRICES, r"the targets have mean \S+e\+05 .*pass standardise=True, or scale them"),
    (X, [y / 1000 for y in ROOMS], "the targets have mean .* deviation 0.00"),
    (IDS, ROOMS, r"the inputs, column 3, have mean 1.*e\+06 and deviation"),
    ([(x, 50 * x) for x in X], ROOMS, "the inputs 1, column 0, have mean"),
    ([100 * torch.rand(len(x), 1, 4, 4) for x in X], ROOMS, "the inputs have mean"),
]


class Summed(nn.Module):
    """Any inputs, one output."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, *x: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = sum(each.flatten(1).sum(1) for each in x) * self.scale
        return total


@pytest.mark.parametrize(("x", "y", "sentence"), FAR)
def test_what_is_far_from_1_is_warned_of_and_standardised(x: Any, y: Any, sentence: str) -> None:
    with pytest.warns(UserWarning, match=sentence):
        fit(x, y, Summed(), rounds=1)
    fit(x, y, Summed(), rounds=1, standardise=True)


@pytest.mark.parametrize("options", [{}, {"algorithm": FedAvg(eta=0.1)}, {"fleet": "pool"}])
def test_prices_are_learned_and_everything_is_in_their_units(options: Any, tmp_path: Path) -> None:
    out = tmp_path / "a.sqlite"
    run = fit(IDS, PRICES, dense(4), standardise=True, out=out, **options)
    assert explained(run.model, IDS, PRICES) > 0.98
    with torch.no_grad():
        own = nn.functional.mse_loss(run.model(IDS[1]), PRICES[1].unsqueeze(1))
    assert run.history[-1]["loss"] == pytest.approx(float(own), rel=1e-4)
    again = tunefree.load(out, dense(4))
    assert torch.equal(again(IDS[0]), run.model(IDS[0]))
    assert "standardised by the clients' sums: input, targets" in run.summary()


def test_the_scaling_is_that_of_all_samples_together() -> None:
    run = fit(IDS, PRICES, dense(4), rounds=1, standardise=True)
    module: Any = run.model
    assert isinstance(module, Standardised)
    for name, values in (("input", torch.cat(IDS)), ("targets", torch.cat(PRICES))):
        mean, deviation = module.moments(name)
        torch.testing.assert_close(mean.flatten(), values.mean(0).flatten())
        expected = values.std(0, correction=0).flatten()
        torch.testing.assert_close(deviation.flatten(), expected, rtol=1e-4, atol=0)


def test_it_is_plain_training_on_numbers_that_were_scaled_before() -> None:
    x, y = torch.cat(X), torch.cat(PRICES)
    mean, deviation = x.mean(0), x.std(0, correction=0)
    by_hand = [(each - mean) / deviation for each in X]
    targets = [(each - y.mean()) / y.std(correction=0) for each in PRICES]
    plain = fit(by_hand, targets, dense(), algorithm=FedAvg(eta=0.01))
    run = fit(X, PRICES, dense(), algorithm=FedAvg(eta=0.01), standardise=True)
    torch.testing.assert_close(run.theta, plain.theta, rtol=1e-3, atol=1e-4)
    scale = float(y.var(correction=0))
    assert run.history[-1]["loss"] == pytest.approx(scale * plain.history[-1]["loss"], rel=1e-3)


def test_a_resumed_run_has_the_same_scaling(tmp_path: Path) -> None:
    clients = list(zip(IDS, PRICES, strict=True))
    whole = fit(IDS, PRICES, dense(4), standardise=True, rounds=8)
    out = tmp_path / "a.sqlite"
    settings = SETTINGS | {"rounds": 8, "eval_every": 4}
    for row in tunefree.Run(dense(4), clients, clients[1], standardise=True, out=out, **settings):
        if row["round"] == 3:
            break
    run = tunefree.resume(out, dense(4), clients, clients[1], progress=False)
    assert run.theta_sha256 == whole.theta_sha256


def test_masks_labels_and_ids_stay_as_they_are() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.dense = nn.Embedding(9, 3), nn.Linear(3, 3)

        def forward(self, x: torch.Tensor, mask: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            assert set(mask.flatten().tolist()) <= {0.0, 1.0}
            answer: torch.Tensor = self.dense(x * mask) + self.words(ids)
            return answer

    x = [{"x": 50 * x, "mask": (x > 0).float(), "ids": (x[:, 0] > 0).long()} for x in X]
    run = fit(x, [each.argmax(dim=1) for each in X], Masked(), standardise=True, rounds=2)
    module: Any = run.model
    assert set(module.scaling) == {"input 'x'", "input 'mask'"}
    assert run.history[-1]["accuracy"] >= 0


class OwnLoss(nn.Linear):
    def forward(self, x: torch.Tensor) -> Any:
        out = super().forward(x)
        return {"logits": out, "loss": out.square().mean()}


def test_a_models_own_loss_cannot_be_standardised() -> None:
    with pytest.raises(ConfigError, match="standardise = True cannot be used with a model that"):
        fit(X, PRICES, OwnLoss(3, 1), standardise=True)
