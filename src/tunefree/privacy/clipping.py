"""Bounding uploads that have no bound of their own: at a fixed norm, or at the median norm.

The median is followed privately (Andrew, Thakkar, McMahan, Ramaswamy, NeurIPS 2021, algorithm 1):
each client also tells whether its norm was within the threshold C, the noisy share b of those that
were is compared with a half, and C <- C exp(-0.2 (b - 1/2)): too many within it make it smaller.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from tunefree.core import Message, Vec, norm
from tunefree.errors import ConfigError

SHARE = 0.05  # of the cohort: the standard deviation of the noise on the number within
SPEED = 0.2
FIRST = 0.1  # the threshold of the first round
NEARLY = 1e-6  # of a threshold: a norm that fills it so far was cut before


class Clipped(NamedTuple):
    """A vector of bounded norm, and whether it had it before."""

    v: Vec
    within: bool


def clipped(v: Vec, threshold: float) -> Clipped:
    """The vector, scaled down to this norm if it was longer.

    >>> import torch
    >>> clipped(torch.tensor([3.0, 4.0]), 2.5)
    Clipped(v=tensor([1.5000, 2.0000]), within=False)
    """
    length = float(norm(v.double()))
    within = length <= threshold * (1 - NEARLY)
    return Clipped(v if length <= threshold else v * (threshold / length), within)


def cut(up: Message, threshold: float) -> Message:
    """An upload whose vectors have at most this norm together, as a client sends it.

    Compressed ones stay as they are: the server cuts every upload again.
    """
    if not all(isinstance(v, torch.Tensor) for v in up):
        return up
    fields: Any = type(up)
    sizes = [v.numel() for v in up]
    return fields(*torch.split(clipped(torch.cat(list(up)), threshold).v, sizes))


def next_threshold(threshold: float, within: float) -> float:
    """The threshold of the next round, after so noisy a share was within this one's.

    >>> next_threshold(1.0, within=1.0) < 1 < next_threshold(1.0, within=0.0)
    True
    """
    return threshold * math.exp(-SPEED * (within - 0.5))


class Split(NamedTuple):
    """Noise of two sums of one round that together give away as much as one.

    Attributes:
        vectors: Of the sum of vectors, in units of the threshold.
        votes: Of the number within, where each client counts as 1/2 or -1/2.
    """

    vectors: float
    votes: float


def split_noise(sigma: float, per_round: float) -> Split:
    """A little less noise for the votes, a little more for the vectors.

    >>> split_noise(sigma=1.0, per_round=100)
    Split(vectors=1.005037815259212, votes=5.0)
    """
    votes = SHARE * per_round
    rest = sigma**-2 - (2 * votes) ** -2
    if rest <= 0:
        raise ConfigError(
            f"the median norm cannot be followed privately with {per_round:g} clients per round "
            f"and noise of {sigma:.2f} uploads",
            f"raise {{per_round}} above {sigma / (2 * SHARE):.0f}, or give clip, the largest norm",
        )
    return Split(rest**-0.5, votes)
