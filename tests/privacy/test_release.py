"""The release: one noisy mean over a fixed number, whoever came."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tunefree.core import Message, Reply, Vec, norm
from tunefree.privacy.accountant import Gaussian, epsilon
from tunefree.privacy.clipping import FIRST, next_threshold, split_noise
from tunefree.privacy.ledger import Ledger
from tunefree.privacy.release import NoisyMean, deployed, simulated, whole
from tunefree.wire import Compressed

ZERO = torch.zeros(3)


class Up(NamedTuple):
    delta: Vec


class TwoUps(NamedTuple):
    delta: Vec
    more: Vec


class PackedUp(NamedTuple):
    d: Compressed


def without_noise(
    t: int, vectors: Sequence[Vec], size: int, clients: Sequence[int]
) -> NDArray[np.floating]:
    assert all(float(norm(v)) <= 1 + 1e-6 for v in vectors)
    return sum((v.double().numpy() for v in vectors), np.zeros(size))


def replies(*ups: Message) -> list[Reply]:
    return [Reply(client, 10 * client, 2, up) for client, up in enumerate(ups)]


def up(*numbers: float) -> Up:
    return Up(torch.tensor(numbers))


def test_the_sum_is_divided_by_a_fixed_number() -> None:
    mean = NoisyMean(without_noise, sigma=1.0, per_round=4, bound=1.0)
    found = mean(0, Up, replies(up(1, 0, 0), up(0, 0.5, 0)), ZERO)
    assert found.up.delta.tolist() == [0.25, 0.125, 0]
    assert (found.client, found.n, found.tau) == (-1, 1, 2)


def test_nobody_is_a_zero() -> None:
    mean = NoisyMean(without_noise, sigma=1.0, per_round=4, bound=1.0)
    assert mean(0, Up, [], ZERO).up.delta.tolist() == [0, 0, 0]


def test_a_larger_upload_counts_as_its_bound() -> None:
    mean = NoisyMean(without_noise, sigma=1.0, per_round=1, bound=2.0)
    assert mean(0, Up, replies(up(0, 30, 40)), ZERO).up.delta.tolist() == pytest.approx(
        [0, 1.2, 1.6]
    )


def test_several_fields_have_one_norm() -> None:
    mean = NoisyMean(without_noise, sigma=1.0, per_round=1, bound=5.0)
    both = TwoUps(torch.tensor([6.0, 0, 0]), torch.tensor([0, 8.0, 0]))
    found = mean(0, TwoUps, replies(both), ZERO).up
    assert found.delta.tolist() == pytest.approx([3, 0, 0])
    assert found.more.tolist() == pytest.approx([0, 4, 0])


def test_compressed_uploads_come_out_as_they_are_read() -> None:
    mean = NoisyMean(without_noise, sigma=1.0, per_round=1, bound=1.0)
    found = mean(0, PackedUp, replies(PackedUp(whole(torch.tensor([0.5, 0, 0])))), ZERO)
    assert found.up.d.dense().tolist() == [0.5, 0, 0]


def test_simulated_noise_has_its_size_and_its_seed() -> None:
    like = torch.zeros(100_000)
    mean = NoisyMean(simulated(seed=3, sigma=2.0), sigma=2.0, per_round=10, bound=5.0)
    found = mean(4, Up, [], like).up.delta
    assert float(found.std()) == pytest.approx(2.0 * 5 / 10, rel=0.02)
    assert torch.equal(found, mean(4, Up, [], like).up.delta)
    assert not torch.equal(found, mean(5, Up, [], like).up.delta)


def test_the_threshold_follows_the_noisy_share() -> None:
    sigma, per_round = 1.0, 100
    mean = NoisyMean(without_noise, sigma, per_round)
    many = replies(*(up(0.2, 0, 0) for _ in range(60)), *(up(0.05, 0, 0) for _ in range(40)))
    found = mean(0, Up, many, ZERO).up.delta
    assert float(found[0]) == pytest.approx((60 * FIRST + 40 * 0.05) / 100)
    assert mean.threshold == pytest.approx(next_threshold(FIRST, 0.4))
    NoisyMean(without_noise, sigma, per_round, threshold=7.0)(0, Up, many, ZERO)


def test_both_sums_have_the_noise_of_the_split() -> None:
    like, parts = torch.zeros(100_000), split_noise(1.0, 100)
    means = [NoisyMean(simulated(seed, 1.0), 1.0, 100, threshold=3.0) for seed in range(400)]
    found = means[0](0, Up, [], like).up.delta
    assert float(found.std()) == pytest.approx(parts.vectors * 3.0 / 100, rel=0.02)
    for mean in means[1:]:
        mean(0, Up, [], ZERO)
    shares = [0.5 - math.log(mean.threshold / 3.0) / 0.2 for mean in means]
    assert np.mean(shares) == pytest.approx(0.5, abs=0.01)  # of nobody: a half by definition
    assert np.std(shares) == pytest.approx(parts.votes / 100, rel=0.15)


def test_a_deployed_sum_is_entered_before_it_leaves(tmp_path: Path) -> None:
    release = Gaussian(0.5)
    ledger = Ledger.open(tmp_path / "ledger.sqlite", epsilon({release: 1}, 1e-5), 1e-5)
    mean = NoisyMean(deployed(ledger, release), release.sigma, per_round=2, bound=1.0)
    like = torch.zeros(50_000)
    one = torch.zeros(50_000)
    one[0] = 1.0
    found = mean(0, Up, replies(Up(one), Up(one)), like).up.delta
    assert ledger.left([0, 1, 2], release) == {0: 0, 1: 0, 2: 1}
    assert ledger.spent() > 0
    assert torch.equal(found, mean(0, Up, replies(up(*one.tolist())), like).up.delta)
    assert float(found[1:].std()) == pytest.approx(0.25, rel=0.03)
    assert abs(float(found[0]) - 1) < 5 * 0.25


def test_a_deployed_sum_is_the_sum() -> None:
    class Silent:
        def once(self, key, release, value, clients=None, times=1):  # type: ignore[no-untyped-def]
            return value()

    release = Gaussian(1e-4)
    mean = NoisyMean(deployed(Silent(), release), release.sigma, 1, bound=1.0)  # type: ignore[arg-type]
    found = mean(0, Up, replies(up(0.6, 0, -0.5), up(0.1, 0.2, 0)), ZERO).up.delta
    assert found.tolist() == pytest.approx([0.7, 0.2, -0.5], abs=1e-3)


def test_two_deployments_have_different_noise(tmp_path: Path) -> None:
    def one(name: str) -> Vec:
        ledger = Ledger.open(tmp_path / name, 100.0, 1e-5)
        found: Vec = NoisyMean(deployed(ledger, Gaussian(0.5)), 0.5, 1, 1.0)(0, Up, [], ZERO).up[0]
        return found

    assert not torch.equal(one("a"), one("b"))
