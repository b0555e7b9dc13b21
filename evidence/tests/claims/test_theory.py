"""The synthetic problems, the slopes measured on them, and what decides a theorem."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tunefree_evidence.claims.claims import THEORY
from tunefree_evidence.claims.theory import (
    Case,
    Measurement,
    bowls,
    constants,
    laws,
    measure,
    slope_part,
    verdict,
)

X = (10, 100, 1000)


def falling(power: float, wanted: float, jitter: float = 0.0) -> Measurement:
    """Five seeds whose slopes scatter by `jitter` around a power."""
    slopes = power + jitter * np.array([-2, -1, 0, 1, 2])
    values = {seed: [float(x**slope) for x in X] for seed, slope in enumerate(slopes)}
    return Measurement("a law", wanted, X, values)


def test_gradients_are_those_of_the_function() -> None:
    problem = bowls(N=3, seed=0, spread=2.0, scale=5.0)
    theta = torch.linspace(-1, 1, 8, dtype=torch.float64, requires_grad=True)
    loss = sum(
        5 * (0.5 * a * (theta - b) ** 2 + (1 - torch.cos(3 * theta)) / 9).sum()
        for a, b in zip(problem.a, problem.b, strict=True)
    )
    (expected,) = torch.autograd.grad(torch.as_tensor(loss), theta)
    with torch.no_grad():
        total = torch.stack([problem.grad(i, theta) for i in range(3)]).sum(dim=0)
        torch.testing.assert_close(total, expected)
        (length,) = problem.norms(theta.unsqueeze(0))
    assert length == pytest.approx(float(expected.norm()) / 3 / 5)


def test_the_start_is_as_far_from_the_optimum_however_far_apart_clients_are() -> None:
    for spread in (1.0, 100.0):
        problem = bowls(N=16, seed=3, spread=spread)
        assert float(np.linalg.norm(problem.theta0)) == pytest.approx(2)
        assert problem.norms(torch.zeros(1, 8, dtype=torch.float64))[0] == 0
        total = sum(problem.grad(i, torch.zeros(8, dtype=torch.float64)) for i in range(16))
        assert float(torch.as_tensor(total).norm()) < 1e-9 * spread


def test_slopes_decide() -> None:
    assert falling(-0.3, -0.25).slopes() == pytest.approx([-0.3] * 5)
    assert slope_part(falling(-0.3, -0.25, 0.001)).holds is True
    assert slope_part(falling(-0.21, -0.25, 0.001)).holds is True  # about -1/4
    assert slope_part(falling(-0.15, -0.25, 0.001)).holds is False
    assert slope_part(falling(-0.21, -0.25, 0.05)).holds is None
    assert verdict(40, [falling(-0.3, -0.25, 0.001)]).word == "holds"
    assert verdict(40, [falling(-0.3, -0.25, 0.001), falling(-0.1, -0.25)]).word == "does not hold"
    assert verdict(40, [falling(-0.21, -0.25, 0.05)]).word == "not decided"


def one(label: str, *values: float) -> Measurement:
    return Measurement(label, None, [1, 100], {0: list(values), 1: [v * 1.001 for v in values]})


def test_a_trajectory_that_moves_with_the_loss_fails() -> None:
    assert verdict(44, [one("PAdaMFed", 1e-12), one("FedAvg", 2.0)]).word == "holds"
    assert verdict(44, [one("PAdaMFed", 0.1), one("FedAvg", 2.0)]).word == "does not hold"
    assert verdict(44, [one("PAdaMFed", 1e-12), one("FedAvg", 1e-12)]).word == "does not hold"


def test_distance_must_not_matter_and_fedavg_must_stall() -> None:
    fine, stalls = one("PAdaMFed against distance", 0.1, 0.1), one("FedAvg, K = 8", 0.3, 0.3)
    assert verdict(45, [fine, stalls]).word == "holds"
    assert verdict(45, [one("PAdaMFed against distance", 0.1, 0.5), stalls]).word == "does not hold"
    assert verdict(45, [fine, one("FedAvg, K = 8", 0.3, 0.1)]).word == "does not hold"


def test_every_theorem_has_laws_at_every_size() -> None:
    for claim in THEORY:
        for most in (64, 4096, 16384):
            rows = laws(claim, most)
            assert rows
            assert all(row.power is None or len(row.cases) >= 2 for row in rows)
            for row in rows:
                for case in row.cases.values():
                    assert max(most, 128) >= case.sys.T


def test_the_measures() -> None:
    free, tied = Case("padamfed", constants(20, 2, 1)), Case("fedavg", constants(20), {"eta": 1e-4})
    assert measure(free, 0, "shift") < 1e-9
    assert measure(tied, 0, "shift") > 0.1
    mean, square = measure(free, 1, "mean"), measure(free, 1, "square")
    assert mean**2 <= square
    assert measure(free, 1, "late") < mean
