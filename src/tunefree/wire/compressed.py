"""A compressed vector: an immutable value with its bits, its bytes and the vector it stands for.

It has one part per parameter tensor. A part is made of numbers (values, scales), which cost as
much as an element of the vector, and of bits (positions, signs, levels, seeds).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from tunefree.core import Vec, norm
from tunefree.wire.rotation import unrotated

Bits = NDArray[np.uint8]  # one bit per element
Numbers = NDArray[np.int64]

SEED_BITS = 32
MOST_LEVELS = 65_535
MOST_PARTS = 65_535
GAUSSIAN: Mapping[int, tuple[float, ...]] = {  # bits: Lloyd's levels above 0, best for N(0, 1)
    1: (0.7979,),
    2: (0.4528, 1.510),
    3: (0.2451, 0.7560, 1.344, 2.152),
    4: (0.1284, 0.3881, 0.6568, 0.9424, 1.256, 1.618, 2.069, 2.733),
}


class Part(Protocol):
    """The compressed form of one tensor."""

    @property
    def d(self) -> int:
        """Elements of the tensor."""

    @property
    def numbers(self) -> Vec:
        """What is sent at the vector's precision."""

    @property
    def extra(self) -> int:
        """Bits sent beside the numbers."""

    @property
    def length(self) -> float:
        """The norm of the tensor that it stands for, without building it."""

    def dense(self) -> Vec: ...

    def bits(self) -> Bits:
        """The extra bits."""


@dataclass(frozen=True, eq=False)
class Whole:
    """An uncompressed tensor."""

    numbers: Vec
    extra: ClassVar[int] = 0

    @property
    def d(self) -> int:
        return self.numbers.numel()

    @property
    def length(self) -> float:
        return float(norm(self.numbers))

    def dense(self) -> Vec:
        return self.numbers

    def bits(self) -> Bits:
        return np.empty(0, np.uint8)


@dataclass(frozen=True, eq=False)
class Picked:
    """Some elements, with their positions in rising order."""

    d: int
    index: Vec
    numbers: Vec

    @property
    def extra(self) -> int:
        return self.index.numel() * width(self.d)

    @property
    def length(self) -> float:
        return float(norm(self.numbers))

    def dense(self) -> Vec:
        return self.numbers.new_zeros(self.d).index_copy_(0, self.index, self.numbers)

    def bits(self) -> Bits:
        return to_bits(self.index.cpu().numpy(), width(self.d))


@dataclass(frozen=True, eq=False)
class Seeded:
    """Some elements, at positions that sender and receiver draw from one seed."""

    d: int
    seed: int
    numbers: Vec
    extra: ClassVar[int] = SEED_BITS

    @property
    def length(self) -> float:
        return float(norm(self.numbers))

    def dense(self) -> Vec:
        index = torch.from_numpy(drawn(self.seed, self.d, self.numbers.numel()))
        index = index.to(self.numbers.device)
        return self.numbers.new_zeros(self.d).index_copy_(0, index, self.numbers)

    def bits(self) -> Bits:
        return to_bits(np.array([self.seed]), SEED_BITS)


@dataclass(frozen=True, eq=False)
class Signs:
    """One scale, and one sign per element."""

    numbers: Vec  # the scale
    negative: Vec

    @property
    def d(self) -> int:
        return self.negative.numel()

    @property
    def extra(self) -> int:
        return self.d

    @property
    def length(self) -> float:
        return abs(float(self.numbers)) * math.sqrt(self.d)

    def dense(self) -> Vec:
        return torch.where(self.negative, -self.numbers, self.numbers)

    def bits(self) -> Bits:
        return self.negative.cpu().numpy().view(np.uint8)


@dataclass(frozen=True, eq=False)
class Levels:
    """One norm, and per element a sign and one of the levels 0, ..., s."""

    s: int
    numbers: Vec  # the norm
    levels: Vec  # -s, ..., s

    @property
    def d(self) -> int:
        return self.levels.numel()

    @property
    def extra(self) -> int:
        return self.d * (1 + width(self.s + 1))

    @property
    def length(self) -> float:
        return abs(float(self.numbers)) * float(norm(self.levels.double())) / self.s

    def dense(self) -> Vec:
        return self.levels.to(self.numbers.dtype) / self.s * self.numbers  # never above the norm

    def bits(self) -> Bits:
        levels = self.levels.cpu().numpy()
        return to_bits(2 * np.abs(levels) + (levels < 0), 1 + width(self.s + 1))


@dataclass(frozen=True, eq=False)
class RotatedLevels:
    """One scale, a seed, and per element of the rotated tensor a sign and one of a few levels."""

    width: int  # bits per element
    seed: int
    numbers: Vec  # the scale
    codes: Vec  # twice the level's number; one more for a minus

    @property
    def d(self) -> int:
        return self.codes.numel()

    @property
    def extra(self) -> int:
        return SEED_BITS + self.d * self.width

    @property
    def most(self) -> float:
        """The largest possible element: the rotation preserves the norm, up to rounding."""
        return 1.001 * float(self.numbers) * GAUSSIAN[self.width][-1] * math.sqrt(self.d)

    @property
    def length(self) -> float:
        return abs(float(self.numbers)) * float(norm(self.rotated))

    @property
    def rotated(self) -> Vec:
        """The rotated tensor, in units of its scale."""
        values = [sign * level for level in GAUSSIAN[self.width] for sign in (1, -1)]
        return self.numbers.new_tensor(values).index_select(0, self.codes.int())

    def dense(self) -> Vec:
        return unrotated(self.rotated, self.seed) * self.numbers

    def bits(self) -> Bits:
        codes = to_bits(self.codes.cpu().numpy(), self.width)
        return np.concatenate([to_bits(np.array([self.seed]), SEED_BITS), codes])


def drawn(seed: int, d: int, k: int) -> Numbers:
    """k of d positions, in rising order: those of the k smallest of d raw words of PCG64.

    A generator's words are the same in every version of numpy; its `choice` need not be.

    >>> drawn(seed=1, d=10, k=3).tolist() == drawn(seed=1, d=10, k=3).tolist()
    True
    """
    words = np.random.PCG64(seed).random_raw(d)
    return np.flatnonzero(words <= np.partition(words, k - 1)[k - 1])[:k]


@dataclass(frozen=True, eq=False)
class Compressed:
    """What C(v) sends: one part per tensor."""

    parts: tuple[Part, ...]

    @property
    def bits(self) -> int:
        """Everything: values, scales, signs, levels, positions and seeds."""
        return sum(weight(part) for part in self.parts)

    @property
    def value_bits(self) -> int:
        """The papers' count, without the bits that say at which positions values are."""
        placed = sum(part.extra for part in self.parts if isinstance(part, Picked | Seeded))
        return self.bits - placed

    def dense(self) -> Vec:
        """The vector it stands for."""
        if len(self.parts) == 1:
            return self.parts[0].dense()
        return torch.cat([part.dense() for part in self.parts])

    def to_bytes(self) -> bytes:
        """All numbers, then all bits, padded to a whole byte."""
        numbers = torch.cat([part.numbers for part in self.parts]).cpu().numpy()
        little = numbers.astype(numbers.dtype.newbyteorder("<"), copy=False)
        return little.tobytes() + pack([part.bits() for part in self.parts])

    def is_finite(self) -> bool:
        return all(bool(torch.isfinite(part.numbers).all()) for part in self.parts)


def weight(part: Part) -> int:
    """The bits of one part."""
    return part.numbers.numel() * part.numbers.element_size() * 8 + part.extra


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
