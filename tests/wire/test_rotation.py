"""The rotation is orthogonal and the same everywhere, and its levels are those of a Gaussian."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.twins.compression import rotated as naive
from tests.twins.compression import rotation
from tunefree.core import stream
from tunefree.wire import from_spec
from tunefree.wire.compressed import GAUSSIAN, RotatedLevels
from tunefree.wire.compressors import PerTensor, Rotated
from tunefree.wire.rotation import drawn_signs, hadamard, rotated, unrotated

seeds = st.integers(0, 2**32 - 1)
every_width = pytest.mark.parametrize("bits", GAUSSIAN)


@settings(max_examples=40, deadline=None)
@given(d=st.integers(1, 70), seed=seeds)
def test_it_is_the_page_with_its_matrices(d: int, seed: int) -> None:
    x = torch.from_numpy(stream(seed, "x").normal(size=d))
    basis, y = rotation(d, seed), rotated(x, seed)
    np.testing.assert_allclose(basis @ basis.T, np.eye(d), atol=1e-12)
    np.testing.assert_allclose(y, basis @ x.numpy(), atol=1e-12)
    np.testing.assert_allclose(unrotated(y, seed), x, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_what_it_is_given_stays_as_it_was(dtype: torch.dtype) -> None:
    x = torch.arange(12, dtype=dtype)
    assert rotated(x, 1).dtype == unrotated(x, 1).dtype == dtype
    assert hadamard(x[:8]).dtype == dtype
    assert torch.equal(x, torch.arange(12, dtype=dtype))


def test_it_is_the_same_everywhere() -> None:
    """It is part of the wire's format: another machine must invert it."""
    minus = [[0, 1, 3, 7], [1, 3, 6]]
    assert [np.flatnonzero(row < 0).tolist() for row in drawn_signs(7, torch.zeros(8))] == minus
    exact = unrotated(torch.tensor([1.0, 2.0, 4.0, 8.0]), 7) * 2
    assert exact.tolist() == [-15.0, 5.0, -9.0, -3.0]


def test_signs_are_even() -> None:
    drawn = torch.stack([drawn_signs(seed, torch.zeros(40)) for seed in range(2000)])
    assert (drawn.abs() == 1).all()
    assert (drawn.mean(0).abs() < 5 / math.sqrt(2000)).all()


@every_width
def test_the_levels_are_those_that_lloyds_rule_leaves_where_they_are(bits: int) -> None:
    """Each is the mean of a Gaussian over the numbers that are nearest to it."""
    levels, normal = GAUSSIAN[bits], NormalDist()
    assert len(levels) == 2 ** (bits - 1)
    edges = [0.0, *((a + b) / 2 for a, b in pairwise(levels)), 9.0]
    means = [
        (normal.pdf(a) - normal.pdf(b)) / (normal.cdf(b) - normal.cdf(a))
        for a, b in pairwise(edges)
    ]
    np.testing.assert_allclose(levels, means, rtol=1e-3)


@every_width
@settings(max_examples=25, deadline=None)
@given(d=st.integers(1, 70), seed=seeds)
def test_it_is_the_naive_one(bits: int, d: int, seed: int) -> None:
    x = torch.from_numpy(stream(seed, "x").standard_t(2, size=d))
    ours = PerTensor(Rotated(bits))(x, stream(seed, "C")).dense()
    expected = naive(GAUSSIAN[bits])(x.numpy(), stream(seed, "C"))
    np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("d", [4096, 5000])
@pytest.mark.parametrize(("bits", "left"), [(1, 0.363), (2, 0.117), (3, 0.0345), (4, 0.0095)])
def test_what_is_left_of_a_large_tensor(d: int, bits: int, left: float) -> None:
    """As much as of Gaussian numbers, even if there is next to nothing but one of them."""
    x = torch.from_numpy(stream(3, "x").normal(size=d)) * torch.logspace(0, -6, d)
    errors = [
        (from_spec(f"rotated:{bits}")(x, stream(i, "C")).dense() - x).norm() for i in range(4)
    ]
    assert float(torch.stack(errors).pow(2).mean() / x.norm() ** 2) == pytest.approx(left, rel=0.06)


@every_width
def test_the_scale_is_the_one_that_errs_least(bits: int) -> None:
    x = torch.from_numpy(stream(4, "x").normal(size=100))
    (part,) = from_spec(f"rotated:{bits}")(x, stream(4, "C")).parts
    assert isinstance(part, RotatedLevels)
    sent = part.dense()
    assert float(sent @ (x - sent)) == pytest.approx(0, abs=1e-9)


def test_each_message_has_a_rotation_of_its_own() -> None:
    x, C, rng = torch.ones(50), from_spec("rotated:1", [25, 25]), stream(5, "C")
    messages = [C(x, rng) for _ in range(3)]
    found = {part.seed for sent in messages for part in sent.parts if hasattr(part, "seed")}
    assert len(found) == 6


@every_width
def test_no_element_exceeds_what_is_said_of_it(bits: int) -> None:
    """Even if all levels agree to make one element as large as can be."""
    d, top = 64, 2 ** (bits - 1) - 1
    for j in range(d):
        y = rotated(torch.eye(d)[j], seed=9)
        part = RotatedLevels(bits, 9, torch.tensor([2.0]), (2 * top + (y < 0)).to(torch.uint8))
        largest = float(part.dense().abs().max())
        assert part.most / 1.002 < largest <= part.most


@every_width
def test_zero_is_sent_with_a_plus(bits: int) -> None:
    (part,) = from_spec(f"rotated:{bits}")(torch.zeros(9), stream(6, "C")).parts
    assert isinstance(part, RotatedLevels)
    assert (part.numbers.tolist(), part.codes.tolist()) == ([0.0], [0] * 9)


@pytest.mark.parametrize("d", [8, 12])
def test_its_bound_is_met_by_what_the_basis_suits_least(d: int) -> None:
    """One number in the rotated basis, and nothing else."""
    C, seed = from_spec("rotated:1"), int(stream(7, "C").integers(2**32))
    x = unrotated(torch.eye(d, dtype=torch.float64)[3], seed)
    error = float((C(x, stream(7, "C")).dense() - x).norm() ** 2)
    assert error == pytest.approx(C.q2(d))
    assert C.q2(d) == 1 - 1 / d
    assert from_spec("rotated:2").q2(d) == pytest.approx(1 - (0.4528 / 1.510) ** 2 / d)
