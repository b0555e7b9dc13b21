"""Compressors: C(v, rng) is what is sent for v. A rule compresses one tensor.

| spec | C(x) of a tensor of d elements, k = max(1, floor(fraction d)) | error, of ||x||^2 |
|---|---|---|
| identity | x | 0 |
| top:0.05 | the k largest magnitudes; of equals the first | 1 - k/d |
| rand:0.05 | k elements at random | 1 - k/d |
| rand-unbiased:0.05 | d/k times that | d/k - 1 |
| sign | ||x||_1 / d times the signs; that of 0 is + | 1 - 1/d |
| qsgd:4 | ||x|| times x / ||x|| rounded at random to s levels | w = min(d/s^2, sqrt(d)/s) |
| qsgd-contractive:4 | 1 / (1 + w) times that | w / (1 + w) |
| rotated:2 | x in a random orthonormal basis, at b = 1 to 4 bits a number (*) | 1 - (l/L)^2 / d |
| any:top:0.02|sign | one of several, chosen anew at every call | the worst |

(*) Each is sent as its sign and the nearest of 2^(b-1) levels for Gaussian numbers, l to L, and all
are multiplied by the scale with the least error. The bound holds for any x in any basis; in a
random one the error of a large tensor is about 0.36, 0.12, 0.035 and 0.0095 of ||x||^2 at 1, 2, 3
and 4 bits.

A tensor that would become larger is sent whole, without error. Each parameter tensor is
compressed on its own; with the suffix @whole the vector is taken as one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from tunefree.core import Generator, Vec
from tunefree.wire.compressed import (
    GAUSSIAN,
    Compressed,
    Levels,
    Numbers,
    Part,
    Picked,
    RotatedLevels,
    Seeded,
    Signs,
    Whole,
    drawn,
    weight,
)
from tunefree.wire.rotation import rotated


class Compressor(Protocol):
    """Hyper-parameters of C; all randomness comes from the caller. str() gives its spec."""

    @property
    def unbiased(self) -> bool:
        """Whether E C(v) = v."""

    @property
    def contractive(self) -> bool:
        """Whether E ||C(v) - v||^2 <= q^2 ||v||^2 with q < 1, whatever v."""

    def q2(self, d: int) -> float:
        """The q^2 of that bound for vectors of length d, whether or not it is below 1."""

    def __call__(self, v: Vec, rng: Generator) -> Compressed: ...

    def over(self, sizes: Sequence[int] | None) -> Compressor:
        """This compressor for a vector that is made up of tensors of these sizes."""


class Rule(Protocol):
    """What happens to one tensor."""

    @property
    def unbiased(self) -> bool: ...

    @property
    def contractive(self) -> bool: ...

    def q2(self, d: int) -> float: ...

    def __call__(self, x: Vec, rng: Generator) -> Part: ...


@dataclass(frozen=True)
class Identity:
    unbiased: ClassVar[bool] = True
    contractive: ClassVar[bool] = True

    def __str__(self) -> str:
        return "identity"

    def q2(self, d: int) -> float:
        return 0.0

    def __call__(self, x: Vec, rng: Generator) -> Part:
        return Whole(x)


@dataclass(frozen=True)
class Top:
    fraction: float
    unbiased: ClassVar[bool] = False
    contractive: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"top:{self.fraction}"

    def q2(self, d: int) -> float:
        return 1 - keep_count(self.fraction, d) / d

    def __call__(self, x: Vec, rng: Generator) -> Part:
        d = x.numel()
        index = torch.from_numpy(largest(x.abs().cpu().numpy(), keep_count(self.fraction, d)))
        index = index.to(x.device)
        return Picked(d, index, x.index_select(0, index))


@dataclass(frozen=True)
class Rand:
    fraction: float
    unbiased: bool = False

    def __str__(self) -> str:
        return f"rand-unbiased:{self.fraction}" if self.unbiased else f"rand:{self.fraction}"

    @property
    def contractive(self) -> bool:
        return not self.unbiased

    def q2(self, d: int) -> float:
        k = keep_count(self.fraction, d)
        return d / k - 1 if self.unbiased else 1 - k / d

    def __call__(self, x: Vec, rng: Generator) -> Part:
        d, k = x.numel(), keep_count(self.fraction, x.numel())
        seed = int(rng.integers(2**32))
        values = x.index_select(0, torch.from_numpy(drawn(seed, d, k)).to(x.device))
        return Seeded(d, seed, d / k * values if self.unbiased else values)


@dataclass(frozen=True)
class Sign:
    unbiased: ClassVar[bool] = False
    contractive: ClassVar[bool] = True

    def __str__(self) -> str:
        return "sign"

    def q2(self, d: int) -> float:
        return 1 - 1 / d

    def __call__(self, x: Vec, rng: Generator) -> Part:
        return Signs(x.abs().mean(0, keepdim=True), x < 0)


@dataclass(frozen=True)
class Qsgd:
    s: int
    unbiased: bool = True

    def __str__(self) -> str:
        return f"qsgd:{self.s}" if self.unbiased else f"qsgd-contractive:{self.s}"

    @property
    def contractive(self) -> bool:
        return not self.unbiased

    def omega(self, d: int) -> float:
        return min(d / self.s**2, math.sqrt(d) / self.s)

    def q2(self, d: int) -> float:
        omega = self.omega(d)
        return omega if self.unbiased else omega / (1 + omega)

    def __call__(self, x: Vec, rng: Generator) -> Part:
        d, size = x.numel(), torch.linalg.vector_norm(x, dtype=torch.float64).to(x.dtype)
        chance = torch.from_numpy(rng.random(d)).to(x.device)
        exact = self.s * x.abs().double() / size
        levels = (exact + chance).floor().clamp(max=self.s) * x.sign()
        shrink = 1.0 if self.unbiased else 1 + self.omega(d)
        return Levels(self.s, size.reshape(1) / shrink, levels.nan_to_num().int())  # 0 / 0


@dataclass(frozen=True)
class Rotated:
    bits: int
    unbiased: ClassVar[bool] = False
    contractive: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"rotated:{self.bits}"

    def q2(self, d: int) -> float:
        """1 - cos^2 of the angle between y and its levels q."""
        low, high = GAUSSIAN[self.bits][0], GAUSSIAN[self.bits][-1]
        # <q, y> >= low ||y||_1 >= low ||y||, ||q|| <= high sqrt(d): cos^2 >= (low / high)^2 / d
        return 1 - (low / high) ** 2 / d

    def __call__(self, x: Vec, rng: Generator) -> Part:
        seed = int(rng.integers(2**32))
        y = rotated(x, seed)
        size, rms = y.abs(), torch.linalg.vector_norm(y, dtype=torch.float64) / math.sqrt(len(y))
        levels = torch.tensor(GAUSSIAN[self.bits], dtype=torch.float64, device=x.device)
        edges = (levels[1:] + levels[:-1]) / 2 * rms  # all zero if x is
        index = torch.bucketize(size, edges.to(x.dtype), out_int32=True)
        q = levels.index_select(0, index)
        scale = (q @ size.double()) / (q @ q)
        codes = (2 * index + (y < 0)).to(torch.uint8)
        return RotatedLevels(self.bits, seed, scale.to(x.dtype).reshape(1), codes)


def keep_count(fraction: float, d: int) -> int:
    """k = max(1, floor(fraction d)).

    >>> [keep_count(0.05, d) for d in (250, 10, 5000, 20, 16000, 50, 500, 10)]
    [12, 1, 250, 1, 800, 2, 25, 1]
    """
    return max(1, math.floor(fraction * d + 1e-9))  # 0.29 of 100 is 29


def largest(a: NDArray[Any], k: int) -> Numbers:
    """The positions of the k largest elements, in rising order; of equals the first.

    >>> largest(np.array([1, 3, 1, 2, 1]), 3).tolist()
    [0, 1, 3]
    """
    rest = len(a) - k
    top = np.partition(a, rest)[rest:]  # a selection, no sort
    if np.isnan(top.max()):  # a NaN counts as largest, so that the server sees and refuses it
        return np.sort(np.argpartition(a, rest)[rest:])
    index = np.flatnonzero(a >= top[0])
    if len(index) > k:
        above, equal = np.flatnonzero(a > top[0]), np.flatnonzero(a == top[0])
        index = np.sort(np.concatenate([above, equal[: k - len(above)]]))
    return index


@dataclass(frozen=True)
class PerTensor:
    """A rule applied to each tensor on its own, or to the whole vector if `whole`.

    Without the `sizes` of the tensors it is applied to the whole vector too.
    """

    rule: Rule
    sizes: tuple[int, ...] | None = None
    whole: bool = False

    def __str__(self) -> str:
        return f"{self.rule}@whole" if self.whole else str(self.rule)

    @property
    def unbiased(self) -> bool:
        return self.rule.unbiased

    @property
    def contractive(self) -> bool:
        return self.rule.contractive

    def q2(self, d: int) -> float:
        return max(self.rule.q2(size) for size in self.sizes or (d,))

    def __call__(self, v: Vec, rng: Generator) -> Compressed:
        tensors = (v,) if self.sizes is None else torch.split(v, list(self.sizes))
        return Compressed(tuple(self._part(x, rng) for x in tensors))

    def _part(self, x: Vec, rng: Generator) -> Part:
        part: Part = self.rule(x, rng)
        whole: Part = Whole(x)
        return part if weight(part) < weight(whole) else whole

    def over(self, sizes: Sequence[int] | None) -> PerTensor:
        """This rule for tensors of these sizes, if they matter and are not known yet."""
        if self.whole or self.sizes is not None or sizes is None:
            return self
        return PerTensor(self.rule, tuple(d for d in sizes if d > 0))  # empty ones send nothing


@dataclass(frozen=True)
class AnyOf:
    """One of several compressors, chosen anew at every call: clients differ, and change."""

    choices: tuple[Compressor, ...]

    def __str__(self) -> str:
        return "any:" + "|".join(map(str, self.choices))

    @property
    def unbiased(self) -> bool:
        return all(C.unbiased for C in self.choices)

    @property
    def contractive(self) -> bool:
        return all(C.contractive for C in self.choices)

    def q2(self, d: int) -> float:
        return max(C.q2(d) for C in self.choices)

    def __call__(self, v: Vec, rng: Generator) -> Compressed:
        return self.choices[int(rng.integers(len(self.choices)))](v, rng)

    def over(self, sizes: Sequence[int] | None) -> AnyOf:
        return AnyOf(tuple(C.over(sizes) for C in self.choices))


TOP_5_PERCENT = PerTensor(Top(0.05))
RAND_5_PERCENT = PerTensor(Rand(0.05, unbiased=True))
