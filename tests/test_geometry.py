"""The tensors inside a vector: directions of length 1, polar factors as by SVD, no hidden unit."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.twins.polarfl import newton_schulz as by_hand
from tunefree.core import Shapes, Vec, stream
from tunefree.geometry import (
    descend,
    directions,
    distance,
    newton_schulz,
    polar_directions,
    split,
    units,
)

BAND = (0.68, 1.14)  # of singular values that started at 0.01 of the norm or more
MIXED = ((2, 3), (4,), (), (3, 2), (2, 1, 2, 2), (1, 5), (1,), (5, 1))


def total(shapes: Shapes) -> int:
    assert shapes is not None
    return sum(map(prod, shapes))


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(stream(seed, "geometry", *shape).normal(size=shape))


def with_singular_values(values: Any, rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    short = len(values)
    U, _ = torch.linalg.qr(normal(rows, short, seed=seed))
    V, _ = torch.linalg.qr(normal(columns, short, seed=seed + 1))
    M: torch.Tensor = U @ torch.diag(torch.as_tensor(values, dtype=torch.float64)) @ V.T
    return M


def polar_factor(M: torch.Tensor) -> torch.Tensor:
    """By SVD, without the directions in which M is zero."""
    U, S, Vh = torch.linalg.svd(M, full_matrices=False)
    rank = int((S / S[0] > 1e-10).sum())
    O: torch.Tensor = U[:, :rank] @ Vh[:rank]  # noqa: E741
    return O


def direction_of(M: torch.Tensor) -> torch.Tensor:
    return polar_directions(M.reshape(-1), (tuple(M.shape),)).reshape(M.shape)


@st.composite
def some_shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], ...]:
    shape = st.lists(st.integers(1, 4), max_size=4).map(tuple)
    return tuple(draw(st.lists(shape, min_size=1, max_size=5)))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Vec, tuple[tuple[int, ...], ...]]:
    """A vector of tensors, some of which are zero."""
    shapes = draw(some_shapes())
    rng = stream(draw(st.integers(0, 2**31)), "case")
    parts = [rng.normal(size=prod(shape)) * draw(st.sampled_from([0, 1, 1])) for shape in shapes]
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    return torch.from_numpy(np.concatenate(parts)).to(dtype), shapes


@settings(deadline=None)
@given(case=cases())
def test_every_direction_has_length_one_or_is_zero(case: Any) -> None:
    v, shapes = case
    before = v.clone()
    for direction in (directions, polar_directions):
        result = direction(v, shapes)
        assert (result.dtype, result.shape) == (v.dtype, v.shape)
        for u, part in zip(split(v, shapes), split(result, shapes), strict=True):
            expected = 1 if u.any() else 0
            assert float(torch.linalg.vector_norm(part)) == pytest.approx(expected, abs=1e-5)
            assert float(u.dot(part)) >= 0  # downhill
    assert torch.equal(v, before)


@settings(deadline=None)
@given(case=cases(), power=st.integers(-30, 30))
def test_the_unit_of_the_vector_is_not_seen(case: Any, power: int) -> None:
    """Bit for bit: nothing is added to a norm."""
    v, shapes = case
    for direction in (directions, polar_directions):
        assert torch.equal(direction(2.0**power * v, shapes), direction(v, shapes))


@settings(deadline=None)
@given(case=cases())
def test_a_tensor_does_not_see_the_others(case: Any) -> None:
    v, shapes = case
    together = split(polar_directions(v, shapes), shapes)
    for u, shape, part in zip(split(v, shapes), shapes, together, strict=True):
        torch.testing.assert_close(part, polar_directions(u, (shape,)), rtol=1e-5, atol=1e-6)


def test_directions_are_the_tensors_over_their_norms() -> None:
    v = normal(total(MIXED))
    parts = [u / torch.linalg.vector_norm(u) for u in split(v, MIXED)]
    assert torch.equal(directions(v, MIXED), torch.cat(parts))
    assert torch.equal(directions(v, None), v / torch.linalg.vector_norm(v))
    assert torch.equal(polar_directions(v, None), directions(v, None))
    assert torch.equal(directions(torch.zeros(4), None), torch.zeros(4))


def test_vectors_numbers_and_single_rows_have_no_polar_factor() -> None:
    shapes = ((4,), (), (1, 5), (5, 1), (1,), (1, 1), (1, 2, 3))
    v = normal(total(shapes))
    assert torch.equal(polar_directions(v, shapes), directions(v, shapes))


@pytest.mark.parametrize("shape", [(4, 4), (3, 8), (8, 3), (20, 50), (50, 20), (2, 90), (90, 2)])
def test_singular_values_come_into_the_band(shape: tuple[int, int]) -> None:
    short = min(shape)
    values = np.geomspace(1, 0.05, short)
    M = with_singular_values(values / np.linalg.norm(values), *shape)
    wide = M if shape[0] <= shape[1] else M.T
    found = torch.linalg.svdvals(newton_schulz(wide.unsqueeze(0))[0])
    assert BAND[0] <= float(found.min()) <= float(found.max()) <= BAND[1]
    assert float(found.std()) > 1e-3 or short < 4  # it is no exact polar factor
    np.testing.assert_allclose(newton_schulz(wide.unsqueeze(0))[0], by_hand(wide.numpy()))


@settings(deadline=None, max_examples=60)
@given(
    values=st.lists(st.floats(0.1, 1), min_size=2, max_size=7),
    longer=st.integers(0, 9),
    tall=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_near_the_exact_polar_factor(
    values: list[float], longer: int, tall: bool, seed: int
) -> None:
    """Singular values in the band have a cosine of at least 0.967 with those that are all 1."""
    short, long = len(values), len(values) + longer
    M = with_singular_values(values, *((long, short) if tall else (short, long)), seed=seed)
    exact = polar_factor(M) / short**0.5
    found = direction_of(M)
    assert float((found * exact).sum()) >= 0.967
    U, _, Vh = torch.linalg.svd(M, full_matrices=False)
    inner = U.T @ found @ Vh.T  # the singular vectors are M's own
    torch.testing.assert_close(inner, torch.diag(inner.diagonal()), rtol=0, atol=1e-6)


def test_equal_singular_values_give_the_exact_polar_factor() -> None:
    M = with_singular_values([0.3] * 5, 5, 9)
    torch.testing.assert_close(direction_of(M), polar_factor(M) / 5**0.5)


def test_small_singular_directions_move_like_large_ones() -> None:
    M = with_singular_values([1.0, 0.3, 0.1, 0.02], 4, 6)
    found = torch.linalg.svdvals(direction_of(M))
    assert float(found.max() / found.min()) < BAND[1] / BAND[0]


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_directions_that_are_not_there_stay_away(rank: int, dtype: torch.dtype) -> None:
    M = with_singular_values([1.0, 0.7, 0.5][:rank], 6, 5).to(dtype)
    found = direction_of(M)
    assert torch.isfinite(found).all()
    singular = torch.linalg.svdvals(found.double())
    assert float(singular[:rank].min()) > 0.5 / rank**0.5
    assert float(singular[rank:].max()) < 1e-3
    if rank == 1:
        expected = M / torch.linalg.vector_norm(M)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_zero_matrices_stay_zero_beside_others() -> None:
    shapes = ((3, 4), (3, 4), (4, 3))
    v = torch.cat([torch.zeros(12), normal(12), torch.zeros(12)])
    first, second, third = split(polar_directions(v, shapes), shapes)
    assert not first.any()
    assert not third.any()
    torch.testing.assert_close(second, direction_of(v[12:24].view(3, 4)).reshape(-1))


def test_rows_that_are_zero_stay_zero() -> None:
    """An embedding of which a batch has touched a few words."""
    M = torch.zeros(50, 4, dtype=torch.float64)
    M[[3, 7, 20]] = normal(3, 4)
    found = direction_of(M)
    assert set(found.abs().sum(1).nonzero().flatten().tolist()) == {3, 7, 20}
    torch.testing.assert_close(found[[3, 7, 20]], direction_of(M[[3, 7, 20]]))


def test_a_kernel_is_the_matrix_of_its_first_axis() -> None:
    kernel = normal(6, 3, 5, 5)
    found = direction_of(kernel)
    assert torch.equal(found.reshape(6, 75), direction_of(kernel.reshape(6, 75)))
    singular = torch.linalg.svdvals(found.reshape(6, 75)) * 6**0.5
    assert float(singular.max() / singular.min()) < BAND[1] / BAND[0]
    other = direction_of(kernel.reshape(18, 25)).reshape(kernel.shape)
    assert not torch.allclose(found, other, atol=1e-2)


def test_tall_is_the_transpose_of_wide() -> None:
    M = normal(4, 9)
    torch.testing.assert_close(direction_of(M.T.contiguous()), direction_of(M).T)
    shapes = ((4, 9), (9, 4))
    both = split(polar_directions(torch.cat([M.reshape(-1), M.T.reshape(-1)]), shapes), shapes)
    torch.testing.assert_close(both[1].view(9, 4), both[0].view(4, 9).T)


def test_products_are_those_of_the_short_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """An embedding's are of 4 by 4, not of 900 by 900; and equal shapes are batched."""
    seen: list[tuple[int, ...]] = []

    def watched(X: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(X.shape))
        return newton_schulz(X)

    monkeypatch.setattr("tunefree.geometry.newton_schulz", watched)
    shapes = ((900, 4), (4, 9), (7,), (9, 4), (4, 3, 3))
    polar_directions(normal(total(shapes)), shapes)
    assert seen == [(1, 4, 900), (3, 4, 9)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_batched_tensors_give_the_same_as_single_ones(dtype: torch.dtype) -> None:
    shapes = ((4, 9), (5,), (9, 4), (4, 9), (4, 3, 3))
    v = normal(total(shapes)).to(dtype)
    for u, shape, part in zip(
        split(v, shapes), shapes, split(polar_directions(v, shapes), shapes), strict=True
    ):
        alone = polar_directions(u.clone(), (shape,))
        torch.testing.assert_close(part, alone, rtol=1e-5, atol=1e-6)


def test_units_are_lengths() -> None:
    v = normal(total(MIXED))
    lengths = [float(torch.linalg.vector_norm(u)) for u in split(v, MIXED)]
    assert units(v, MIXED) == tuple(lengths)
    assert units(v, None) == (float(torch.linalg.vector_norm(v)),)


def test_a_tensor_that_starts_at_zero_has_the_median_length_for_its_size() -> None:
    v = torch.cat([torch.ones(4), torch.zeros(9), 2 * torch.ones(1), 10 * torch.ones(2)])
    lengths = (2.0, 3 * 2.0, 2.0, 10 * 2**0.5)  # per number 1, -, 2, 10
    assert units(v, ((4,), (3, 3), (), (2,))) == pytest.approx(lengths)
    assert units(v[:14], ((4,), (3, 3), ())) == pytest.approx((2.0, 3 * 1.5, 2.0))  # of an even 2


def test_where_all_is_zero_a_row_has_length_one() -> None:
    assert units(torch.zeros(17), ((4, 3), (4,), ())) == (2.0, 2.0, 1.0)
    assert units(torch.zeros(9), None) == (3.0,)


def test_a_tensor_without_numbers_does_no_harm() -> None:
    shapes = ((0, 3), (2,), (3, 0))
    v = torch.tensor([3.0, 4.0])
    assert units(v, shapes)[1] == 5.0
    assert torch.equal(polar_directions(v, shapes), v / 5)
    assert distance(2 * v, v, units(v, shapes), shapes) == pytest.approx(3**-0.5)


@settings(deadline=None)
@given(case=cases(), power=st.integers(-30, 30))
def test_units_and_distance_grow_with_the_model(case: Any, power: int) -> None:
    v, shapes = case
    if not v.any():
        return
    s = 2.0**power
    r = units(v, shapes)
    assert all(r_l > 0 for r_l in r)
    assert units(s * v, shapes) == tuple(s * r_l for r_l in r)
    y = v + 1
    assert distance(s * y, s * v, units(s * v, shapes), shapes) == distance(y, v, r, shapes)


def test_distance_is_in_units_and_over_tensors() -> None:
    x, shapes = torch.tensor([3.0, 4.0, 1.0, 0.0]), ((2,), (), ())
    away = torch.tensor([0.0, 0.0, 3.0, 4.0])
    expected = ((5 / 10) ** 2 + (2 / 2) ** 2 + (4 / 1) ** 2) / 3
    assert distance(x, away, (10.0, 2.0, 1.0), shapes) == pytest.approx(expected**0.5)
    assert distance(x, x, (10.0, 2.0, 1.0), shapes) == 0
    assert distance(x, away, (7.0,), None) == pytest.approx((9 + 16 + 4 + 16) ** 0.5 / 7)


@settings(deadline=None)
@given(case=cases())
def test_each_tensor_descends_by_its_own_step(case: Any) -> None:
    v, shapes = case
    x, before, steps = 0 * v + 1, v.clone(), tuple(2.0**place for place in range(len(shapes)))
    expected = [1 - step * u for step, u in zip(steps, split(v, shapes), strict=True)]
    assert torch.equal(descend(x, v, steps, shapes), torch.cat(expected))
    assert torch.equal(descend(x, v, (4.0,), None), x - 4 * v)
    assert torch.equal(v, before)
    assert torch.equal(x, 0 * v + 1)


def test_as_many_numbers_as_tensors() -> None:
    v = torch.ones(5)
    for shapes in (((2,), (3,)), None):
        for numbers in ((), (1.0, 2.0, 3.0)):
            with pytest.raises(ValueError, match=r"is (shorter|longer)|values to unpack"):
                descend(v, v, numbers, shapes)
