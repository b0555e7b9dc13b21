"""Whole numbers of any width as bits, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint8]  # one bit per element
Numbers = NDArray[np.int64]


def width(count: int) -> int:
    """ceil(log2(count)): the bits needed to distinguish `count` values.

    >>> [width(count) for count in (1, 2, 5, 16_000)]
    [0, 1, 3, 14]
    """
    return (count - 1).bit_length()


def to_bits(numbers: Numbers, width: int) -> Bits:
    """Each number as `width` bits, at most 32, lowest first.

    >>> to_bits(np.array([1, 6]), width=3).tolist()
    [1, 0, 0, 0, 1, 1]
    """
    four_bytes = numbers.astype("<u4").view(np.uint8).reshape(-1, 4)
    return np.unpackbits(four_bytes, axis=1, count=width, bitorder="little").reshape(-1)


def from_bits(bits: Bits, width: int) -> Numbers:
    """The inverse of `to_bits`, for a width above 0."""
    columns = bits.reshape(-1, width)
    numbers = np.zeros(len(columns), np.int64)
    for j in range(width):  # far quicker than packing each short row
        numbers |= columns[:, j].astype(np.int64) << j
    return numbers


def pack(bits: Sequence[Bits]) -> bytes:
    """All bits one after the other, the last byte padded with zeros."""
    return np.packbits(np.concatenate([*bits, np.empty(0, np.uint8)]), bitorder="little").tobytes()


def unpack(data: bytes) -> Bits:
    """All bits of the bytes."""
    return np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
