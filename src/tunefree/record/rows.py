"""What is written of a step, and what a history tells of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

Row: TypeAlias = dict[str, float]
BITS = ("bits_up", "bits_down", "value_bits_up", "value_bits_down")


class Line(NamedTuple):
    """All that is kept of one step, beside the states after it."""

    t: int
    samples: int  # drawn by all clients in this step
    seconds: float  # of this step
    virtual_seconds: float  # since the start
    replies: Sequence[tuple[int, int]]  # (client, tau) of those that took part
    scores: Mapping[str, float]
    traffic: Sequence[tuple[int, str, int, int, int]]  # exchange, direction, messages, both bits
    absent: Sequence[tuple[int, int, str]]  # (exchange, client, reason)


class Sums(NamedTuple):
    """A line with its replies, messages and absences counted."""

    t: int
    samples: int
    seconds: float
    virtual_seconds: float
    clients: int
    absent: int
    taus: Mapping[str, float]  # tau_mean and tau_max, where anybody replied
    bits: Mapping[str, int]
    scores: Mapping[str, float]


class Rows:
    """Rows of a history, one for each line: costs since the start, the opening included.

    Those of a resumed run follow the last row it had.
    """

    def __init__(self, last: Row | None = None) -> None:
        self._last: Row = last or {}

    def add(self, line: Line) -> Row:
        """The row of a step, as the history will have it."""
        taus = [tau for _, tau in line.replies]
        bits = dict.fromkeys(BITS, 0)
        for _, direction, _, whole, values in line.traffic:
            bits[f"bits_{direction}"] += whole
            bits[f"value_bits_{direction}"] += values
        late = {"tau_mean": sum(taus) / len(taus), "tau_max": max(taus)} if taus else {}
        counts = len(taus), len(line.absent)
        return self.add_sums(Sums(*line[:4], *counts, late, bits, line.scores))

    def add_sums(self, new: Sums) -> Row:
        before = self._last.get
        self._last = {
            "t": new.t,
            "samples": before("samples", 0) + new.samples,
            "seconds": before("seconds", 0.0) + new.seconds,
            "virtual_seconds": new.virtual_seconds,
            "clients": new.clients,
            "absent": new.absent,
            **new.taus,
            **{kind: before(kind, 0) + new.bits.get(kind, 0) for kind in BITS},
            **new.scores,
        }
        return self._last
