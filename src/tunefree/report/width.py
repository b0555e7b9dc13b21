"""The width of the range of step sizes that are about as good as the best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

WITHIN = 0.05  # of the best accuracy counts as being as good


class Width(NamedTuple):
    """The range of step sizes around the best one that are about as good."""

    best: float  # the step size with the highest accuracy
    low: float
    high: float
    cut_low: bool  # the range may extend below the smallest value that was tried
    cut_high: bool

    @property
    def decades(self) -> float:
        return math.log10(self.high / self.low)


def width(
    curve: Sequence[tuple[float, float]], within: float = WITHIN, chance: float = 0.0
) -> Width | None:
    """The range around the best step size with accuracies within `within` of the best.

    It ends where the curve, interpolated on a logarithmic axis, falls below that. There is none if
    no value is clearly better than `chance`, the accuracy of guessing.

    >>> round(width([(0.01, 0.8), (0.1, 0.9), (1.0, 0.4)]).decades, 3)
    0.6
    >>> width([(0.01, 0.12), (0.1, 0.08)], chance=0.1)
    """
    values, scores = zip(*curve, strict=True)
    best = max(range(len(scores)), key=lambda place: scores[place])
    floor = scores[best] - within
    if floor <= chance:
        return None

    def end(direction: int) -> tuple[float, bool]:
        place = best
        while 0 <= place + direction < len(values) and scores[place + direction] >= floor:
            place += direction
        beyond = place + direction
        if not 0 <= beyond < len(values):
            return values[place], True
        part = (scores[place] - floor) / (scores[place] - scores[beyond])
        log = math.log10(values[place]) + part * math.log10(values[beyond] / values[place])
        return 10**log, False

    (low, cut_low), (high, cut_high) = end(-1), end(+1)
    return Width(values[best], low, high, cut_low, cut_high)
