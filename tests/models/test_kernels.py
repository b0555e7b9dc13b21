"""Every way of computing a gradient gives the same numbers, up to rounding."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.models.convolutional import few_channels, many_channels
from tunefree.data.samples import Samples
from tunefree.errors import ConfigError
from tunefree.fleet.arena import Arena
from tunefree.models import build
from tunefree.models.kernels import Conv, WideConv, chain_of
from tunefree.models.objective import Objective
from tunefree.settings import Kernels

IMAGE = (1, 28, 28)


CHAINS = {
    "logistic": build("logistic", IMAGE, 10),
    "mlp": build("mlp", IMAGE, 10),
    "few channels": few_channels(),
    "many channels": many_channels(),
    "padded, uneven kernel, odd sizes": nn.Sequential(
        nn.Conv2d(1, 3, (3, 5), padding=(2, 1)), nn.ReLU(), nn.MaxPool2d(3), nn.Flatten(),
        nn.Linear(3 * 10 * 8, 10),
    ),
    "pooled first, nested, two dense": nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.Sequential(nn.MaxPool2d(2))),
        nn.Conv2d(2, 4, 3, padding=1), nn.Flatten(),
        nn.Linear(4 * 13 * 13, 7), nn.ReLU(), nn.Linear(7, 10),
    ),
    "few, many and few channels, uneven padding": nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 5, (3, 5), padding=(1, 0)), nn.ReLU(),
        nn.Conv2d(5, 17, 3), nn.MaxPool2d(2), nn.Conv2d(17, 4, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(4 * 10 * 8, 10),
    ),
    "pooled without ReLU, many channels to the end": nn.Sequential(
        nn.Conv2d(1, 16, 5), nn.MaxPool2d(2), nn.Conv2d(16, 16, 5), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 4 * 4, 10),
    ),
}  # fmt: skip


def batch(dtype: torch.dtype, n: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(1)
    return (
        torch.randn(n, *IMAGE, generator=rng, dtype=dtype),
        torch.randint(10, (n,), generator=rng),
    )


@pytest.mark.parametrize("kernels", ["channels-last", "batch-minor"])
@pytest.mark.parametrize("name", CHAINS)
def test_same_numbers_as_the_plain_module(name: str, kernels: Kernels) -> None:
    x, y = batch(torch.float64)
    module = CHAINS[name].double()
    plain, other = Objective(module, kernels="plain"), Objective(module, kernels=kernels)
    theta = plain.theta0 + 0.01
    loss, grad = plain.loss_and_grad(theta, x, y, seed=0)
    other_loss, other_grad = other.loss_and_grad(theta, x, y, seed=0)
    torch.testing.assert_close(other_loss, loss, rtol=1e-12, atol=0)
    for found in (other_grad, other.grad(theta, x, y, seed=0)):
        torch.testing.assert_close(found, grad, rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(other.outputs(theta, x), plain.outputs(theta, x))


def test_colour_images() -> None:
    rng = torch.Generator().manual_seed(2)
    x = torch.randn(4, 3, 12, 12, generator=rng, dtype=torch.float64)
    y = torch.randint(10, (4,), generator=rng)
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(100, 10)
    ).double()
    plain, ours = (Objective(module, kernels=k) for k in ("plain", "batch-minor"))
    _, grad = plain.loss_and_grad(plain.theta0, x, y, seed=0)
    _, our_grad = ours.loss_and_grad(plain.theta0, x, y, seed=0)
    torch.testing.assert_close(our_grad, grad, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(
    ("module", "kinds"),
    [
        (few_channels(), [Conv, Conv]),
        (many_channels(), [Conv, WideConv, WideConv]),
        (many_channels(3), [WideConv, WideConv, WideConv]),
    ],
)
def test_who_convolves(module: nn.Module, kinds: list[type]) -> None:
    chain = chain_of(module)
    assert chain is not None
    assert kinds == [type(each) for each in chain.layers if isinstance(each, Conv | WideConv)]


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(784, 10),
        nn.Sequential(nn.Flatten(), nn.Linear(784, 10, bias=False)),
        nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.Dropout(0.5)),
        nn.Sequential(nn.Flatten(), nn.Tanh(), nn.Linear(784, 10)),
        nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.Flatten(), nn.Linear(338, 10)),
        nn.Sequential(nn.Conv2d(1, 2, 3, padding="same"), nn.Flatten(), nn.Linear(1568, 10)),
        nn.Sequential(nn.Conv2d(1, 10, 28)),
        nn.Sequential(nn.MaxPool2d(2, stride=1), nn.Flatten(), nn.Linear(729, 10)),
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.Linear(26, 10)),
        nn.Sequential(nn.Linear(28, 28), nn.Flatten(), nn.Linear(784, 10)),
    ],
)
def test_what_is_no_chain_is_left_to_torch(module: nn.Module) -> None:
    assert chain_of(module) is None
    with pytest.raises(ConfigError, match="kernels = 'batch-minor' needs a Sequential"):
        Objective(module, kernels="batch-minor")


def test_frozen_layers_are_left_to_torch() -> None:
    module = build("mlp", IMAGE, 10)
    next(module.parameters()).requires_grad_(False)
    assert chain_of(module) is None


def test_the_choice() -> None:
    assert Objective(CHAINS["few channels"]).kernels == "batch-minor"
    assert Objective(CHAINS["logistic"]).kernels == "batch-minor"
    assert Objective(CHAINS["many channels"]).kernels == "batch-minor"
    normed = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.LazyLinear(10))
    normed(torch.zeros(1, *IMAGE))
    assert Objective(normed).kernels == "channels-last"
    assert Objective(nn.LSTM(3, 4)).kernels == "plain"
    assert Objective(CHAINS["mlp"], nn.functional.multi_margin_loss).kernels == "plain"


class Halving(nn.Linear):
    """Looks like a dense layer but is not one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) / 2


def test_kernels_that_disagree_with_the_module_are_not_used() -> None:
    objective = Objective(nn.Sequential(nn.Flatten(), Halving(784, 10)))
    x, y = batch(torch.float32)
    objective.check(Samples(x, y))
    assert objective.kernels == "plain"
    _, expected = Objective(objective.module, kernels="plain").loss_and_grad(
        objective.theta0, x, y, seed=0
    )
    assert torch.equal(objective.loss_and_grad(objective.theta0, x, y, seed=0)[1], expected)


@pytest.mark.parametrize("kernels", ["plain", "channels-last", "batch-minor"])
def test_an_objective_in_another_process_gives_the_same_bits(kernels: Kernels) -> None:
    x, y = batch(torch.float32)
    objective = Objective(CHAINS["few channels"].float(), kernels=kernels)
    arena = Arena.create()
    other = arena.unpack(arena.pack(objective), copy=True)
    assert other.kernels == kernels
    for mine, its in zip(
        objective.loss_and_grad(objective.theta0, x, y, 0),
        other.loss_and_grad(objective.theta0, x, y, 0),
        strict=True,
    ):
        assert torch.equal(mine, its)
