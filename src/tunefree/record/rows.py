"""What is stored for a step, and its row in a history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

Row: TypeAlias = dict[str, float]
COSTS = ("t", "samples", "seconds", "virtual_seconds")
BITS = ("bits_up", "bits_down", "value_bits_up", "value_bits_down")
CUMULATIVE = ("samples", "seconds", *BITS)
NO_SCORES = ("round", *COSTS, "clients", "absent", "tau_mean", "tau_max", *BITS)


class Line(NamedTuple):
    """All that is stored for one step, beside the states after it."""

    t: int
    samples: int  # drawn by all clients in this step
    seconds: float  # of this step
    virtual_seconds: float  # since the start
    replies: Sequence[tuple[int, int]]  # (client, tau) of each reply used
    scores: Mapping[str, float]
    traffic: Sequence[tuple[int, str, int, int, int]]  # exchange, direction, messages, both bits
    absent: Sequence[tuple[int, int, str]]  # (exchange, client, reason)


class Rows:
    """Rows of a history, one for each line: costs since the start, the opening included.

    Those of a resumed run continue after its last row.
    """

    def __init__(self, last: Row | None = None) -> None:
        self._last: Row = last or {}

    def add(self, line: Line) -> Row:
        """The row of a step, as the history will have it."""
        taus, bits = [tau for _, tau in line.replies], Counter[str]()
        for _, direction, _, whole, values in line.traffic:
            bits[f"bits_{direction}"] += whole
            bits[f"value_bits_{direction}"] += values
        late = (sum(taus) / len(taus), max(taus)) if taus else ()
        return self.add_counts(line[:4], (len(taus), *late), len(line.absent), bits, line.scores)

    def add_counts(
        self,
        costs: Sequence[float],
        replies: Sequence[float],
        absent: int,
        bits: Mapping[str, int],
        scores: Mapping[str, float],
    ) -> Row:
        """The row of a line whose replies (how many, mean and largest tau) are counted."""
        row: Row = {"round": costs[0] + 1}  # 0 is the opening
        row |= dict(zip(COSTS, costs, strict=True))
        row |= {"clients": replies[0], "absent": absent}
        row |= dict(zip(("tau_mean", "tau_max"), replies[1:], strict=False))
        row |= {kind: bits.get(kind, 0) for kind in BITS}
        row |= {cost: self._last.get(cost, 0) + row[cost] for cost in CUMULATIVE}
        self._last = row | dict(scores)
        return self._last
