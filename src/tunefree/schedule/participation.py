"""How late replies were, and how evenly clients took part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from tunefree.schedule.trip import Step


class Participation(NamedTuple):
    """Of all replies of a run, the opening left out."""

    staleness_mean: float
    staleness_max: int
    staleness_histogram: dict[int, int]  # replies of each staleness, from the freshest on
    uploads_min: int  # of the client that was heard least
    uploads_max: int


def participation(steps: Iterable[Step], N: int) -> Participation:
    """Sum up who was heard and how late; of a step only clients and staleness are looked at.

    >>> participation([Step(0, None, [0, 2], (), 0, staleness=(0, 3))], N=4)
    ... # doctest: +NORMALIZE_WHITESPACE
    Participation(staleness_mean=1.5, staleness_max=3, staleness_histogram={0: 1, 3: 1},
                  uploads_min=0, uploads_max=1)
    """
    taus, uploads = Counter[int](), Counter(dict.fromkeys(range(N), 0))
    for step in steps:
        if step.t >= 0:
            taus.update(step.staleness)
            uploads.update(step.clients)
    replies = max(1, taus.total())
    return Participation(
        sum(tau * count for tau, count in taus.items()) / replies,
        max(taus, default=0),
        dict(sorted(taus.items())),
        min(uploads.values()),
        max(uploads.values()),
    )
