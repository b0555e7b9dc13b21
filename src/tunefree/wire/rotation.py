"""A random rotation that sender and receiver draw from one seed, in d log d steps without padding.

With n the largest power of two that is at most d: random signs on all numbers, a Walsh-Hadamard
transform of the first n; if some remain, random signs again and one of the last n. Each step is
orthogonal. The result looks Gaussian for any input, so one set of levels suits every tensor.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from tunefree.core import Vec


def rotated(x: Vec, seed: int) -> Vec:
    """The numbers of x in the basis of that seed."""
    d, n, signs = x.numel(), block(x.numel()), drawn_signs(seed, x)
    y = x * signs[0]
    y[:n] = hadamard(y[:n])
    if n < d:
        y *= signs[1]
        y[d - n :] = hadamard(y[d - n :])
    return y


def unrotated(y: Vec, seed: int) -> Vec:
    """The inverse of `rotated`: its steps backwards, each its own inverse."""
    d, n, signs = y.numel(), block(y.numel()), drawn_signs(seed, y)
    x = y.clone()
    if n < d:
        x[d - n :] = hadamard(x[d - n :])
        x *= signs[1]
    x[:n] = hadamard(x[:n])
    return x * signs[0]


def block(d: int) -> int:
    """The largest power of two that is at most d.

    >>> [block(d) for d in (1, 2, 3, 8, 250)]
    [1, 2, 2, 8, 128]
    """
    return 1 << (d.bit_length() - 1)


def drawn_signs(seed: int, like: Vec) -> Vec:
    """Two rows of signs, from the bits of raw words of PCG64, lowest first; a 1 is a minus.

    A generator's words are the same in every version of numpy.
    """
    d = like.numel()
    words = np.random.PCG64(seed).random_raw(-(-2 * d // 64))
    bits = np.unpackbits(words.astype("<u8").view(np.uint8), count=2 * d, bitorder="little")
    return 1 - 2 * torch.from_numpy(bits).reshape(2, d).to(like.device, like.dtype)


def hadamard(x: Vec) -> Vec:
    """The Walsh-Hadamard transform of a power of two of numbers; it is its own inverse.

    Sums of two in a fixed order and one factor, no matrix products: all machines get the same bits.

    >>> hadamard(torch.tensor([1.0, 2.0, 3.0, 4.0])).tolist()
    [5.0, -1.0, -2.0, 0.0]
    """
    now, then, h = x.clone(), torch.empty_like(x), 1
    while h < x.numel():
        a, b = now.view(-1, 2, h).unbind(1)
        sums, differences = then.view(-1, 2, h).unbind(1)
        torch.add(a, b, out=sums)
        torch.sub(a, b, out=differences)
        now, then, h = then, now, 2 * h
    return now * (1 / math.sqrt(x.numel()))
