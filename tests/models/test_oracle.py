"""A module on a flat vector: the same gradient as autograd's own, and nothing silently wrong."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from tests.models.convolutional import few_channels
from tunefree.core import mean, stream
from tunefree.data.samples import Samples
from tunefree.errors import ConfigError
from tunefree.models import build
from tunefree.models.objective import Objective
from tunefree.models.oracle import DataOracle


def samples(n: int = 12, dtype: torch.dtype = torch.float32) -> Samples:
    rng = torch.Generator().manual_seed(0)
    return Samples(
        torch.randn(n, 1, 28, 28, generator=rng, dtype=dtype),
        torch.randint(10, (n,), generator=rng),
    )


def oracle(objective: Objective, data: Samples, batch_size: int = 5, seed: int = 0) -> DataOracle:
    return DataOracle(objective, data, np.arange(len(data)), batch_size, stream(seed, "test"))


@pytest.mark.parametrize("name", ["logistic", "mlp", "convolutions"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_is_autograds(name: str, dtype: torch.dtype) -> None:
    module = (few_channels() if name == "convolutions" else build(name, (1, 28, 28), 10)).to(dtype)
    data = samples(dtype=dtype)
    objective = Objective(module, kernels="plain")
    theta = objective.theta0 + 0.01
    loss, grad = objective.loss_and_grad(theta, data.x, data.y, seed=0)

    at = 0
    for p in module.parameters():
        p.data = theta[at : at + p.numel()].view_as(p).clone()
        at += p.numel()
    expected = nn.functional.cross_entropy(module(data.x), data.y)
    expected.backward()  # type: ignore[no-untyped-call]
    assert torch.equal(loss, expected.detach())
    assert torch.equal(grad, torch.cat([p.grad.reshape(-1) for p in module.parameters()]))  # type: ignore[union-attr]
    assert grad.dtype == dtype


def test_the_users_module_is_left_alone() -> None:
    module = build("mlp", (1, 28, 28), 10)
    before = [p.clone() for p in module.parameters()]
    objective = Objective(module)
    objective.module_at(objective.theta0 + 1)
    assert all(torch.equal(p, b) for p, b in zip(module.parameters(), before, strict=True))


def test_frozen_parameters_are_no_part_of_theta() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(784, 7), nn.Linear(7, 10))
    for p in module[1].parameters():
        p.requires_grad_(False)
    assert Objective(module).d == 80


def test_draw_cycles_through_reshuffled_samples() -> None:
    F = oracle(Objective(build("mlp", (1, 28, 28), 10)), samples(12), batch_size=5)
    epochs = [np.concatenate([F.draw().places for _ in range(3)]) for _ in range(2)]
    for epoch in epochs:
        assert sorted(epoch) == list(range(12))
    assert list(epochs[0]) != list(epochs[1])


@pytest.mark.parametrize("ahead", [1, 2**19])
def test_a_batch_has_the_samples_that_it_names(ahead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunefree.models.oracle.AHEAD", ahead)
    data = samples(12)
    F = oracle(Objective(build("mlp", (1, 28, 28), 10)), data, batch_size=5)
    for xi in (F.draw() for _ in range(4)):
        assert torch.equal(xi.x, data.x[xi.places])
        assert torch.equal(xi.y, data.y[xi.places])


def test_a_client_with_fewer_samples_than_a_batch_uses_what_it_has() -> None:
    F = oracle(Objective(build("mlp", (1, 28, 28), 10)), samples(3), batch_size=100)
    assert sorted(F.draw().places) == [0, 1, 2]


def test_the_oracle_counts_the_samples_used() -> None:
    objective = Objective(build("mlp", (1, 28, 28), 10))
    F = oracle(objective, samples(12), batch_size=5)
    F.grad(objective.theta0, F.draw())
    F.full_grad(objective.theta0)
    assert (F.n, F.drawn) == (12, 5 + 12)


@pytest.mark.parametrize(
    ("n", "batch_size", "times"),
    [
        (12, 4, [2, 2, 2]),  # two whole passes
        (12, 4, [2, 2, 2, 1, 1]),
        (12, 4, [1, 1]),
        (12, 5, [1] * 6),  # the last batch of a pass is smaller, so passes differ
        (3, 100, [7]),
    ],
)
def test_mean_grad_computes_equal_passes_once(n: int, batch_size: int, times: list[int]) -> None:
    data = samples(n, torch.float64)
    objective = Objective(build("mlp", (1, 28, 28), 10).double())
    objective.check(data)
    theta, K = objective.theta0, sum(times)
    F, again = oracle(objective, data, batch_size), oracle(objective, data, batch_size)
    drawn = [again.draw() for _ in range(K)]
    grads = [again.grad(theta, xi) for xi in drawn]

    found = F.mean_grad(theta, K)
    assert F.drawn == again.drawn
    torch.testing.assert_close(found, mean(grads[: len(times)], times))
    if len(set(times)) == 1:  # otherwise the rest is of an earlier pass
        torch.testing.assert_close(found, mean(grads))


def test_mean_grad_with_dropout_computes_every_mask() -> None:
    data = samples(12)
    objective = Objective(few_channels(dropout=0.5))
    objective.check(data)
    theta = objective.theta0
    F, again = oracle(objective, data, batch_size=6), oracle(objective, data, batch_size=6)
    expected = mean(again.grad(theta, again.draw()) for _ in range(4))
    assert torch.equal(F.mean_grad(theta, 4), expected)


def test_full_grad_is_the_mean_over_all_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunefree.models.oracle.EVALUATION_BATCH", 5)
    data = samples(12, torch.float64)
    objective = Objective(build("mlp", (1, 28, 28), 10).double())
    _, whole = objective.loss_and_grad(objective.theta0, data.x, data.y, seed=0)
    torch.testing.assert_close(oracle(objective, data).full_grad(objective.theta0), whole)


def test_one_xi_is_one_function_even_with_dropout() -> None:
    data = samples()
    objective = Objective(few_channels(dropout=0.5))
    objective.check(data)
    F = oracle(objective, data)
    xi, other = F.draw(), F.draw()
    assert objective.stochastic
    assert torch.equal(F.grad(objective.theta0, xi), F.grad(objective.theta0, xi))
    same_samples = xi._replace(seed=other.seed)
    assert not torch.equal(F.grad(objective.theta0, xi), F.grad(objective.theta0, same_samples))


def test_a_model_without_noise_is_recognised() -> None:
    objective = Objective(few_channels())
    objective.check(samples())
    assert not objective.stochastic


def test_batch_norm_is_refused() -> None:
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4))
    with pytest.raises(ConfigError, match=r"layer '1' \(BatchNorm2d\) keeps running statistics"):
        Objective(module)


def test_batch_norm_without_running_statistics_and_constant_buffers_are_fine() -> None:
    module = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, track_running_stats=False), nn.Flatten(),
        nn.Linear(4 * 26 * 26, 10),
    )  # fmt: skip
    module.register_buffer("table", torch.arange(3))
    Objective(module).check(samples())


class Counting(nn.Module):
    """A user's own layer with a hidden state."""

    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(784, 10)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += len(x)
        answer: torch.Tensor = self.dense(x.flatten(1))
        return answer


def test_a_buffer_that_changes_in_training_is_refused() -> None:
    with pytest.raises(ConfigError, match="buffer 'seen' changes in training"):
        Objective(Counting()).check(samples())


def test_a_model_that_does_not_fit_the_data_says_so() -> None:
    with pytest.raises(ConfigError, match=r"cannot take a batch with x \(2, 1, 28, 28\)"):
        Objective(nn.Sequential(nn.Flatten(), nn.Linear(64, 10))).check(samples())


def test_a_loss_that_is_not_one_number_is_refused() -> None:
    def per_sample(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(out, y, reduction="none")

    with pytest.raises(ConfigError, match="loss"):
        Objective(build("mlp", (1, 28, 28), 10), per_sample).check(samples())


def test_a_model_without_parameters_is_refused() -> None:
    with pytest.raises(ConfigError, match="no trainable parameter"):
        Objective(nn.Flatten())
