"""Gaussian noise: seeded for simulations, exact integers from the system's entropy for deployments.

Floating-point noise leaks: which numbers it can yield depends on what it is added to. A deployment
therefore rounds each upload to a grid towards zero, so that no norm grows, adds them as integers,
and adds integers drawn from the discrete Gaussian: P(x) ∝ exp(-x^2 / (2 s^2)) for whole x. The
draw is exact, by rejection (Canonne, Kamath, Steinke, NeurIPS 2020, algorithms 1 to 3), and with
s a power of two every comparison is one of 64-bit integers. The grid is so fine that s = 2^20
steps; its Rényi divergences are at most the Gaussian's, so the accountant's figures hold.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tunefree.core import stream

Integers: TypeAlias = NDArray[np.int64]
Words: TypeAlias = Callable[[int], NDArray[np.uint64]]  # so many words of 64 random bits

BITS = 20  # the noise's standard deviation is 2^20 steps of the grid


def seeded(seed: int, t: int, size: int) -> NDArray[np.float32]:
    """Standard noise of round t in a simulation: the same seed gives the same bits.

    It promises nothing to anyone who knows the seed.
    """
    return stream(seed, "privacy noise", t).standard_normal(size, dtype=np.float32)


def entropy(count: int) -> NDArray[np.uint64]:
    """Random words from the operating system's cryptographic generator."""
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def on_grid(v: NDArray[np.floating], step: float, bound: float) -> Integers:
    """The vector in whole steps, rounded towards zero: no norm grows, and none exceeds the bound.

    >>> on_grid(np.array([0.9, -1.9, 2.0]), step=0.5, bound=3.0).tolist()
    [1, -3, 4]
    """
    scaled = v.astype(np.float64) / step
    while True:
        x = np.trunc(scaled).astype(np.int64)
        square = int(x @ x)  # exact, as a sum of floats would not be
        if square <= (bound / step) ** 2:
            return x
        scaled *= (1 - 1e-9) * min(1.0, bound / step / square**0.5)


def grid(sigma: float, bound: float, clients: int = 1) -> float:
    """The step of the grid for uploads of this norm.

    `clients` is for noise that each adds a share of: their shares, each of standard deviation
    2^20 steps, add up to sigma times the bound. Their sum is not exactly discrete Gaussian but as
    close as exp(-pi^2 4^20) (Kairouz, Liu, Steinke, ICML 2021), so there is no need for Skellam's
    distribution, which has no exact and fast draw.
    """
    return sigma * bound / math.sqrt(clients) / float(2**BITS)


def discrete_gaussian(size: int, bits: int = BITS, words: Words = entropy) -> Integers:
    """So many integers with standard deviation 2^bits, at most 2^20; independent and exact."""
    found: list[Integers] = []
    while (missing := size - sum(map(len, found))) > 0:
        x = discrete_laplace(2 * missing + 64, bits, words)
        excess = np.abs(x) - 2**bits  # accept x with probability exp(-excess^2 / (2 s^2))
        near = np.abs(excess) < 2 ** (bits + 6)  # beyond 63 s nothing would be accepted: e^-2000
        whole, part = np.divmod(np.where(near, excess, 0) ** 2, 2 ** (2 * bits + 1))
        keep = near & exp_minus(part, 2 * bits + 1, words) & ones_in_a_row(whole, words)
        found.append(x[keep][:missing])
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


def discrete_laplace(count: int, bits: int, words: Words) -> Integers:
    """About so many integers with P(x) ∝ exp(-|x| / 2^bits), fewer by those it rejects."""
    low = uniform(bits, count, words)
    low = low[exp_minus(low, bits, words)]
    high = np.zeros_like(low)
    still = np.arange(len(low))  # each counts its successes of probability 1/e
    while len(still):
        still = still[exp_minus(np.ones(len(still), dtype=np.int64), 0, words)]
        high[still] += 1
    size = low + high * 2**bits
    negative = words(len(size)) < 2**63
    signed: Integers = np.where(negative, -size, size)
    kept: Integers = signed[~(negative & (size == 0))]
    return kept


def exp_minus(numerator: Integers, bits: int, words: Words) -> NDArray[np.bool_]:
    """True with probability exp(-numerator / 2^bits) each, for fractions from 0 to 1.

    Tosses coins of probability fraction / k for k = 1, 2, ... until one fails; true if k is odd.
    """
    result = np.zeros(len(numerator), dtype=bool)
    still, k = np.arange(len(numerator)), 1
    while len(still):
        heads = uniform(bits, len(still), words) < numerator[still]
        if k > 1:
            heads[heads] = below(k, int(heads.sum()), words) == 0
        if k % 2:
            result[still[~heads]] = True
        still, k = still[heads], k + 1
    return result


def ones_in_a_row(counts: Integers, words: Words) -> NDArray[np.bool_]:
    """True with probability exp(-count) each."""
    result = np.ones(len(counts), dtype=bool)
    left = counts.copy()
    while (still := np.flatnonzero(result & (left > 0))).size:
        result[still] = exp_minus(np.ones(len(still), dtype=np.int64), 0, words)
        left[still] -= 1
    return result


def uniform(bits: int, count: int, words: Words) -> Integers:
    """So many integers of so many random bits, at most 63."""
    if not bits:
        return np.zeros(count, np.int64)
    return (words(count) >> np.uint64(64 - bits)).astype(np.int64)


def below(k: int, count: int, words: Words) -> NDArray[np.uint64]:
    """So many uniform integers from 0 to k - 1; words that would favour some are drawn again."""
    limit = np.uint64(2**64 - 2**64 % k - 1)
    drawn = words(count).copy()
    while (over := np.flatnonzero(drawn > limit)).size:
        drawn[over] = words(len(over))
    return drawn % np.uint64(k)
