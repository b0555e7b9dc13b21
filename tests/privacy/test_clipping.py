"""Clipping: the norm that clients have, found without the wrong sign."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tunefree.core import norm, stream
from tunefree.errors import ConfigError
from tunefree.privacy.clipping import FIRST, clipped, next_threshold, split_noise


def test_a_long_vector_is_shortened_and_a_short_one_is_not() -> None:
    v = torch.tensor([3.0, 4.0])
    assert clipped(v, 5.0).v is v
    assert float(norm(clipped(v, 1.0).v)) == pytest.approx(1.0)
    assert not clipped(v, 1.0).within
    assert clipped(0 * v, 1.0).within


@pytest.mark.parametrize("first", [FIRST, 50.0])
def test_the_threshold_goes_to_the_median(first: float) -> None:
    rng = stream(0, "norms")
    threshold = first
    for _ in range(400):
        norms = rng.uniform(1.0, 1.2, 100)
        within = np.mean(norms <= threshold) + rng.normal(0, 0.05)
        threshold = next_threshold(threshold, float(within))
    assert 1.0 < threshold < 1.2


def test_both_sums_cost_what_one_did() -> None:
    vectors, votes = split_noise(sigma=1.5, per_round=100)
    assert votes == 5
    assert vectors**-2 + (2 * votes) ** -2 == pytest.approx(1.5**-2)


def test_too_small_a_round_is_refused() -> None:
    with pytest.raises(ConfigError, match="raise per_round above 20"):
        split_noise(sigma=2.0, per_round=10)
