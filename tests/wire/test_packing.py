"""Whole numbers as bits, at every width that a wire needs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunefree.wire.compressed import from_bits, pack, to_bits, unpack, width


@pytest.mark.parametrize("size", range(1, 33))
@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_there_and_back(size: int, data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(0, 2**size - 1), max_size=20))
    bits = to_bits(np.array(numbers, np.int64), size)
    assert bits.tolist() == [number >> j & 1 for number in numbers for j in range(size)]
    assert from_bits(bits, size).tolist() == numbers
    packed = pack([bits[:3], bits[3:]])
    assert len(packed) == -(-len(bits) // 8)
    assert unpack(packed)[: len(bits)].tolist() == bits.tolist()


@given(count=st.integers(1, 2**32))
def test_width_is_the_logarithm_rounded_up(count: int) -> None:
    assert 2 ** width(count) >= count > 2 ** width(count) // 2 * (count > 1)
