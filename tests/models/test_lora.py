"""A model with adapters starts as the model without them, and only they are trained."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tunefree.errors import ConfigError
from tunefree.models import build
from tunefree.models.lora import Adapted, with_adapters
from tunefree.models.objective import Objective

IMAGES = torch.randn(4, 3, 9, 9, generator=torch.Generator().manual_seed(1))
WORDS = torch.tensor([[3, 4, 5, 0], [1, 2, 0, 0], [0, 0, 0, 0], [6, 7, 8, 9]])
Y = torch.tensor([0, 1, 1, 0])
MODELS = {
    "linear": (lambda: nn.Linear(9, 2), IMAGES[:, 0, 0]),
    "mlp": (lambda: build("mlp", (3, 9, 9), 2), IMAGES),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 5, 3, stride=2, padding=1, dilation=2, padding_mode="reflect"),
            nn.Conv2d(5, 4, (1, 3), padding="same", bias=False),
            nn.Flatten(),
            nn.LazyLinear(2),
        ),
        IMAGES,
    ),
    "transformer": (
        lambda: nn.Sequential(
            nn.Embedding(10, 8),
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True),
            nn.Flatten(),
            nn.Linear(32, 2),
        ),
        WORDS,
    ),
}


def made(name: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(3)
    make, x = MODELS[name]
    model: nn.Module = make().double()  # type: ignore[no-untyped-call]
    x = x if name == "transformer" else x.double()
    model(x)
    return model.eval(), x


@pytest.mark.parametrize("name", MODELS)
def test_it_starts_as_the_model_without(name: str) -> None:
    model, x = made(name)
    before = model(x)
    adapted = with_adapters(model, rank=2)
    assert torch.equal(adapted(x), before)
    trained = [n for n, p in adapted.named_parameters() if p.requires_grad]
    assert trained
    assert all(n.endswith(("down.weight", "up.weight")) for n in trained)


@pytest.mark.parametrize("name", MODELS)
def test_every_adapter_has_its_gradient(name: str) -> None:
    model, x = made(name)
    frozen = {n: p.clone() for n, p in model.named_parameters()}
    objective = Objective(with_adapters(model, rank=2))
    theta = torch.randn(
        objective.d, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    loss, grad = objective.loss_and_grad(theta, x, Y, seed=0)
    step = 1e-6 * torch.sign(grad)
    lower, _ = objective.loss_and_grad(theta - step, x, Y, seed=0)
    assert float(loss - lower) == pytest.approx(1e-6 * float(grad.abs().sum()), rel=1e-2)
    assert all(part.any() for part in torch.split(grad, objective._sizes))
    kept = {n.replace("layer.", ""): p for n, p in objective.module.named_parameters()}
    assert all(torch.equal(kept[n], p) for n, p in frozen.items())
    _, scored = objective.score(theta, x, Y)  # attention reads weights directly here
    torch.testing.assert_close(scored, loss)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_one_layer_of_its_weight_does_the_same(name: str) -> None:
    model, x = made(name)
    adapted = with_adapters(model, rank=2)
    for p in adapted.parameters():
        nn.init.normal_(p) if p.requires_grad else p
    answer = adapted(x)
    for layer in adapted.modules():
        if isinstance(layer, Adapted):
            layer.layer.weight.data = layer.weight.detach().clone()
            nn.init.zeros_(layer.up.get_parameter("weight"))
    torch.testing.assert_close(adapted(x), answer)


def test_a_layer_that_is_used_twice_has_one_adapter() -> None:
    layer = nn.Linear(3, 3)
    adapted = with_adapters(nn.Sequential(layer, nn.ReLU(), layer), rank=1)
    assert isinstance(adapted, nn.Sequential)
    assert adapted[0] is adapted[2]
    assert Objective(adapted).d == 6


def test_what_has_no_adapter_stays_as_it_is() -> None:
    grouped = nn.Conv2d(4, 4, 3, groups=2)
    model = nn.Sequential(grouped, nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    adapted = with_adapters(model, rank=1)
    objective = Objective(adapted)  # which refuses statistics that would change
    assert isinstance(adapted, nn.Sequential)
    assert adapted[0] is grouped
    assert objective.d == 4 + 2
    with pytest.raises(ConfigError, match="lora = 2 needs a model with linear or conv"):
        with_adapters(build("quadratic", (2, 5), None), rank=2)
