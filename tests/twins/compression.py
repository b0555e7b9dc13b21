"""Compressors written naively on plain arrays: C(x, rng) -> C(x), tensor after tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tunefree.core import Generator
from tunefree.testing import Array

Naive = Callable[[Array, Generator], Array]


def identity(x: Array, rng: Generator) -> Array:
    return x


def top(fraction: float) -> Naive:
    """The k = max(1, floor(fraction d)) largest magnitudes; of equals the first."""

    def apply(x: Array, rng: Generator) -> Array:
        k = max(1, int(fraction * len(x)))
        order = sorted(range(len(x)), key=lambda j: (-abs(x[j]), j))
        return np.array([x[j] if j in order[:k] else 0.0 for j in range(len(x))])

    return apply


def sign(x: Array, rng: Generator) -> Array:
    scale = sum(abs(x)) / len(x)
    return np.array([scale if x_j >= 0 else -scale for x_j in x])


def qsgd(s: int, contractive: bool = False) -> Naive:
    """Each |x_j| / ||x|| goes to one of the two nearest of s + 1 levels, at random."""

    def apply(x: Array, rng: Generator) -> Array:
        d, size, chance = len(x), np.linalg.norm(x), rng.random(len(x))
        omega = min(d / s**2, d**0.5 / s)
        if d == 1:
            return x  # one number is cheaper sent as it is
        out = np.zeros(d)
        for j in range(d):
            level = np.floor(s * abs(x[j]) / size)
            up = chance[j] >= 1 - (s * abs(x[j]) / size - level)
            out[j] = size * np.sign(x[j]) * (level + up) / s
        return out / (1 + omega) if contractive else out

    return apply


def rotated(levels: Sequence[float]) -> Naive:
    """The numbers in a random basis, each at the nearest level for its share of their size."""

    def apply(x: Array, rng: Generator) -> Array:
        d, seed = len(x), int(rng.integers(2**32))
        if d == 1:
            return x  # one number is cheaper sent as it is
        basis = rotation(d, seed)
        y = basis @ x
        rms = (sum(y**2) / d) ** 0.5
        q = np.zeros(d)
        for j in range(d):
            nearest = min(levels, key=lambda level: abs(abs(y[j]) / rms - level))
            q[j] = nearest if y[j] >= 0 else -nearest
        scale = float(q @ y) / float(q @ q)
        return np.array(scale * (basis.T @ q))

    return apply


def rotation(d: int, seed: int) -> Array:
    """Random signs and Hadamard's matrix on the first n numbers; the same again on the last n."""
    n = max(2**j for j in range(d.bit_length()) if 2**j <= d)
    H = np.array([[(-1) ** (i & j).bit_count() for j in range(n)] for i in range(n)]) / n**0.5
    words = [int(word) for word in np.random.PCG64(seed).random_raw(2 * d)]
    signs = [1 - 2 * (words[j // 64] >> j % 64 & 1) for j in range(2 * d)]
    first, last = np.eye(d), np.eye(d)
    first[:n, :n], last[d - n :, d - n :] = H, H
    once = first @ np.diag(signs[:d])
    return once if n == d else last @ np.diag(signs[d:]) @ once


def per_tensor(C: Naive, sizes: Sequence[int]) -> Naive:
    def whole(x: Array, rng: Generator) -> Array:
        ends = np.cumsum(sizes)
        return np.concatenate([C(x[e - d : e], rng) for d, e in zip(sizes, ends, strict=True)])

    return whole
