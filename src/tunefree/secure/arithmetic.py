"""The arithmetic, which needs no keys: fixed point modulo 2^32, and Shamir's secret sharing.

The integers are the same with and without masks: a simulation adds up what `to_integers` gives as
uint32, and agrees with a deployed run to the bit.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tunefree.errors import WireError
from tunefree.secure.messages import SHARE, Terms

Words: TypeAlias = NDArray[np.uint32]
CHUNK = 2**16  # words at a time
ROUNDING = 1e-3  # by which a value may exceed its bound; it then counts as the bound
PRIME, SECRET = 2**521 - 1, 32  # the field; bytes of a secret


def scale(terms: Terms, bound: float) -> float:
    """8. By what a value is multiplied before it is rounded."""
    return 2**31 / ((terms.clients + 12 * terms.noise) * bound)


def to_integers(values: Sequence[NDArray[Any]], terms: Terms) -> Words:
    """7, 8. One array per field as words, which are integers with a sign modulo 2^32."""
    if [value.shape for value in values] != [(count,) for count in terms.counts]:
        raise WireError(
            f"an upload is not of {len(terms.counts)} vectors of {terms.counts} numbers"
        )
    words, at = np.empty(sum(terms.counts), np.uint32), 0
    most = (2**31 - 1) // (terms.clients + 12 * terms.noise)  # all at their bound: no wrap-around
    for value, bound in zip(values, terms.bounds, strict=True):
        factor = scale(terms, bound)
        for start in range(0, len(value), CHUNK):
            part = value[start : start + CHUNK].astype(np.float64)
            if not np.abs(part).max() <= bound * (1 + ROUNDING):  # nan is not
                raise WireError(
                    f"a number of an upload is not finite, or exceeds its bound {bound:g}"
                )
            whole = np.clip(np.rint(part * factor), -most, most).astype(np.int32)
            words[at : at + len(part)] = whole.view(np.uint32)
            at += len(part)
    return words


def from_integers(total: Words, terms: Terms) -> list[NDArray[np.float64]]:
    """8. The sum of the clients' values, one array per field."""
    parts = np.split(total.view(np.int32), np.cumsum(terms.counts)[:-1])
    return [part / scale(terms, bound) for part, bound in zip(parts, terms.bounds, strict=True)]


def threshold(n: int) -> int:
    """t(n): two such sets have more than a third of the n in common."""
    return 2 * n // 3 + 1


def split(secret: bytes, t: int, xs: Sequence[int]) -> list[bytes]:
    """5. A share for each x; any t of them give the secret, fewer say nothing."""
    return shares([int.from_bytes(secret, "big"), *map(secrets.randbelow, [PRIME] * (t - 1))], xs)


def shares(coefficients: Sequence[int], xs: Sequence[int]) -> list[bytes]:
    """The values at xs of c_0 + c_1 x + c_2 x^2 + ..."""
    found = []
    for x in xs:
        y = 0
        for c in reversed(coefficients):
            y = (y * x + c) % PRIME
        found.append(y.to_bytes(SHARE, "big"))
    return found


def combine(points: Mapping[int, bytes]) -> bytes:
    """11. The secret from t shares by their x; shares that do not fit give another, or none."""
    weighted = zip(lagrange(tuple(points)), points.values(), strict=True)
    secret = sum(weight * int.from_bytes(share, "big") for weight, share in weighted) % PRIME
    return secret.to_bytes(SHARE, "big")[-SECRET:]


@lru_cache(maxsize=4)
def lagrange(xs: tuple[int, ...]) -> list[int]:
    """The weights that values at xs have in the value at 0."""
    weights = []
    for x in xs:
        above = below = 1
        for other in xs:
            if other != x:
                above, below = above * other % PRIME, below * (other - x) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return weights
