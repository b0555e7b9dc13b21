"""The quadratic data: its options do what they say, and its optimum is one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tunefree.data import load, partition
from tunefree.errors import ConfigError
from tunefree.models import build
from tunefree_evidence.datasets import synthetic


def test_gradient_vanishes_at_the_optimum() -> None:
    data = load("synthetic-quadratic", clients=7, samples=5, dimension=3, curvature=20.0)
    assert data.groups is not None
    parts = partition.natural(data.groups, 7)
    model = build(data.model, data.train.input_shape, data.classes).double()
    theta = next(model.parameters())
    theta.data = synthetic.optimum(data.train, parts)

    def f() -> torch.Tensor:
        losses = []
        for part in parts:
            x, y = data.train.batch(part)
            losses.append(torch.nn.functional.mse_loss(model(x.double()), y.double()))
        return torch.stack(losses).mean()

    (gradient,) = torch.autograd.grad(f(), [theta])
    torch.testing.assert_close(gradient, torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0)


def test_uneven_clients_count_equally() -> None:
    data = synthetic.quadratic(dimension=2, clients=2, samples=4)
    parts = partition.quantity(data.train.y, 3, 0.3)
    by_hand = torch.stack(
        [data.train.x[torch.from_numpy(part), 0].double().mean(dim=0) for part in parts]
    ).mean(dim=0)
    torch.testing.assert_close(synthetic.optimum(data.train, parts), by_hand)


def test_options_do_what_they_say() -> None:
    def spread(**options: float) -> tuple[float, float, float]:
        data = load("synthetic-quadratic", None, clients=200, samples=20, **options)
        target = data.train.x[:, 0].view(200, 20, -1)
        within = float((target - target.mean(dim=1, keepdim=True)).pow(2).sum(dim=2).mean().sqrt())
        between = float((target.mean(dim=1) - target.mean(dim=(0, 1))).norm(dim=1).pow(2).mean())
        a = data.train.x[:, 1] ** 2
        return within, between**0.5, float(a.max() / a.min())

    within, between, ratio = spread(heterogeneity=3.0, noise=0.5, curvature=9.0)
    assert within == pytest.approx(0.5, rel=0.1)
    assert between == pytest.approx(3.0, rel=0.1)
    assert 8 < ratio <= 9.001
    assert spread(heterogeneity=0.0, noise=0.0, curvature=1.0) == pytest.approx((0, 0, 1), abs=1e-5)


def test_seeded_with_natural_clients() -> None:
    a, b, c = (load("synthetic-quadratic", seed=seed) for seed in (0, 0, 1))
    assert torch.equal(a.train.x, b.train.x)
    assert not torch.equal(a.train.x, c.train.x)
    assert a.groups is not None
    assert np.bincount(a.groups).tolist() == [100] * 100
    assert a.classes is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"dimension": 0}, "dimension = 0 must be at least 1"),
        ({"clients": 2.5}, "clients = 2.5 must be a whole number"),
        ({"noise": -1}, "noise = -1 must be at least 0"),
        ({"curvature": 0.5}, "curvature = 0.5 must be at least 1"),
        ({"heterogeneity": "big"}, "heterogeneity = 'big' must be a number"),
        ({"hetero": 1}, "option of synthetic-quadratic = 'hetero' is not known"),
    ],
)
def test_mistakes_give_a_clear_error(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        load("synthetic-quadratic", None, **options)
