"""The gradients of all clients at once, by torch.func.vmap, are those of the loop, up to rounding.

Nothing here uses the stacked form: on a CPU it is slower. The test keeps it possible for devices
where it is not: Objective must provide what vmap needs, a plain module and one flat vector.
"""

from __future__ import annotations

import pytest
import torch
from torch.func import functional_call, grad, vmap

from tests.models.convolutional import few_channels
from tunefree.models import build
from tunefree.models.objective import Objective
from tunefree.settings import Kernels

CLIENTS, BATCH = 3, 5


@pytest.mark.parametrize("kernels", ["plain", "batch-minor"])
@pytest.mark.parametrize("name", ["logistic", "convolutions"])
def test_stacked_gradients_are_the_loops(name: str, kernels: Kernels) -> None:
    rng = torch.Generator().manual_seed(3)
    x = torch.randn(CLIENTS, BATCH, 1, 28, 28, generator=rng, dtype=torch.float64)
    y = torch.randint(10, (CLIENTS, BATCH), generator=rng)
    module = few_channels() if name == "convolutions" else build(name, (1, 28, 28), 10)
    objective = Objective(module.double(), kernels=kernels)
    noise = torch.randn(CLIENTS, objective.d, generator=rng, dtype=torch.float64)
    thetas = objective.theta0 + 0.01 * noise
    named = dict(objective.module.named_parameters())

    def loss(theta: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        parts = torch.split(theta, objective._sizes)
        views = {key: part.view_as(p) for (key, p), part in zip(named.items(), parts, strict=True)}
        return objective.loss(functional_call(objective.module, views, (x,)), y)

    stacked = vmap(grad(loss))(thetas, x, y)
    for client in range(CLIENTS):
        _, one = objective.loss_and_grad(thetas[client], x[client], y[client], seed=0)
        torch.testing.assert_close(stacked[client], one, rtol=1e-9, atol=1e-12)
