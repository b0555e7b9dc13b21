"""Noise: seeded to the bit, or exact integers from the system's entropy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tunefree.core import stream
from tunefree.privacy.noise import (
    BITS,
    below,
    discrete_gaussian,
    discrete_laplace,
    entropy,
    exp_minus,
    grid,
    on_grid,
    ones_in_a_row,
    seeded,
    uniform,
)


def seeded_words(count: int) -> NDArray[np.uint64]:
    return RNG.integers(0, 2**64, count, dtype=np.uint64)


RNG = stream(0, "words")


def close(found: NDArray[np.bool_], probability: float) -> bool:
    """Within five standard errors."""
    return abs(float(found.mean()) - probability) < 5 * math.sqrt(probability / len(found)) + 1e-9


def test_seeded_noise_is_the_same_bits() -> None:
    assert np.array_equal(seeded(3, 7, 100), seeded(3, 7, 100))
    assert not np.array_equal(seeded(3, 7, 100), seeded(3, 8, 100))
    assert not np.array_equal(seeded(3, 7, 100), seeded(4, 7, 100))


def test_entropy_does_not_repeat() -> None:
    drawn = np.concatenate([entropy(1000), entropy(1000)])
    assert len(set(drawn.tolist())) == 2000


@pytest.mark.parametrize(("numerator", "bits"), [(1, 0), (0, 4), (3, 4), (15, 4), (2**40, 41)])
def test_coins_of_exp_minus(numerator: int, bits: int) -> None:
    tossed = exp_minus(np.full(200_000, numerator), bits, seeded_words)
    assert close(tossed, math.exp(-numerator / 2**bits))


def test_coins_of_whole_exponents() -> None:
    for n in (0, 1, 3):
        assert close(ones_in_a_row(np.full(200_000, n), seeded_words), math.exp(-n))


def test_uniform_integers() -> None:
    assert uniform(0, 5, seeded_words).tolist() == [0] * 5
    assert set(uniform(2, 1000, seeded_words).tolist()) == {0, 1, 2, 3}
    assert close(below(3, 200_000, seeded_words) == 2, 1 / 3)


def test_words_that_would_favour_some_are_drawn_again() -> None:
    words = iter([[2**64 - 1, 5], [7]])
    drawn = below(3, 2, lambda count: np.array(next(words), dtype=np.uint64))
    assert drawn.tolist() == [1, 2]  # 2^64 - 1 is the one number too many


@pytest.mark.parametrize("bits", [0, 1, 3])
def test_every_integer_has_its_probability(bits: int) -> None:
    s, count = 2**bits, 400_000
    drawn = discrete_gaussian(count, bits, seeded_words)
    assert len(drawn) == count
    x = np.arange(-40 * s, 40 * s + 1)
    p = np.exp(-(x**2) / (2 * s * s))
    p /= p.sum()
    for value in range(-3 * s, 3 * s + 1):
        assert close(drawn == value, p[x == value][0])


def test_laplace_has_no_double_zero() -> None:
    drawn = discrete_laplace(400_000, 1, seeded_words)
    total = (1 - math.exp(-0.5)) / (1 + math.exp(-0.5))
    for value in range(-4, 5):
        assert close(drawn == value, total * math.exp(-abs(value) / 2))


def test_fine_noise_is_gaussian() -> None:
    x = discrete_gaussian(200_000, words=seeded_words) / 2**BITS
    assert x.std() == pytest.approx(1, abs=0.01)
    for z in (-2.0, -0.5, 0.0, 1.0):
        assert close(x < z, 0.5 * math.erfc(-z / math.sqrt(2)))
    assert len(set(x.tolist())) > 150_000


def test_shares_add_up() -> None:
    step = grid(sigma=2.0, bound=3.0, clients=8)
    shares = [discrete_gaussian(100_000, words=seeded_words) for _ in range(8)]
    total = np.sum(shares, axis=0) * step
    assert total.std() == pytest.approx(6, rel=0.02)


def test_none_is_asked_for() -> None:
    assert len(discrete_gaussian(0)) == 0


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=20), st.floats(1e-6, 1.0))
def test_rounding_never_lengthens(values: list[float], step: float) -> None:
    v = np.array(values, dtype=np.float32)
    x = on_grid(v, step, bound=1.0)
    assert int(x @ x) <= (1.0 / step) ** 2
    if np.linalg.norm(v.astype(np.float64)) <= 1 - 1e-6:
        assert (abs(v - x * step) <= step * (1 + 1e-6)).all()


def test_a_norm_just_above_the_bound_is_cut() -> None:
    v = np.full(4, 0.5 * (1 + 1e-6))
    x = on_grid(v, 2.0**-20, bound=1.0)
    assert int(x @ x) <= 2**40
    assert (x > 2**19 - 10).all()
