"""Robust aggregation: a method whose server averages uploads gets a robust centre in their place.

An upload is one row: all its vectors, one after the other. f = max(1, ⌊n/4⌋) of n rows may be bad.

    median             of each coordinate
    trimmed-mean       of each coordinate, without its f largest and f smallest values
    geometric-median   the point whose summed distance to all rows is least (Weiszfeld, 8 steps from
                       the median)
    krum               the mean of the n - f rows with the least summed squared distances to their
                       n - f - 2 nearest rows (Multi-Krum)
    centred-clipping   three times, from the median v: v + mean of (row - v), each cut to the median
                       length of them

Trimmed mean and median: Yin et al., ICML 2018. Geometric median: Pillutla et al., IEEE TSP 2022.
Krum: Blanchard et al., NeurIPS 2017. Centred clipping: Karimireddy et al., ICML 2021, which starts
at the last round's centre; ours keeps no state. Below three uploads it is the mean. Numbers beside
the vectors are replaced by their medians. A server whose c must stay the mean of all c_i cannot be
given another centre.

Wire, memory, tuning: the method's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, ClassVar

from tunefree.core import Exchange, Message, Replies, Server, Vec, Wrapper
from tunefree.geometry import cut, lengths, rows
from tunefree.wire import Compressed
from tunefree.wire.compressed import Whole

FEWEST = 3  # uploads
WEISZFELD, CLIPPINGS = 8, 3  # iterations


def bad(n: int) -> int:
    """How many of n uploads may be bad.

    >>> [bad(n) for n in (3, 10, 50)]
    [1, 2, 12]
    """
    return max(1, n // 4)


def middle(table: Vec) -> Vec:
    ordered, n = table.sort(dim=0).values, len(table)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2


def trimmed(table: Vec) -> Vec:
    f = bad(len(table))
    return table.sort(dim=0).values[f : len(table) - f].mean(dim=0)


def geometric(table: Vec) -> Vec:
    centre = middle(table)
    for _ in range(WEISZFELD):
        w = 1 / lengths(table - centre).clamp_min(1e-12)
        centre = w @ table / w.sum()
    return centre


def krum(table: Vec) -> Vec:
    n, f = len(table), bad(len(table))
    gaps = rows([[lengths(table - row) ** 2] for row in table]).sort(dim=1).values
    score = gaps[:, 1 : 1 + max(1, n - f - 2)].sum(dim=1)  # the first is its own, 0
    chosen = score.argsort(stable=True)[: n - f].sort().values
    return table[chosen].mean(dim=0)


def clipped(table: Vec) -> Vec:
    centre = middle(table)
    for _ in range(CLIPPINGS):
        apart = table - centre
        long = lengths(apart)
        share = (long.median() / long.clamp_min(1e-12)).clamp_max(1)
        centre = centre + (share[:, None] * apart).mean(dim=0)
    return centre


RULES: Mapping[str, Callable[[Vec], Vec]] = {
    "median": middle,
    "trimmed-mean": trimmed,
    "geometric-median": geometric,
    "krum": krum,
    "centred-clipping": clipped,
}


@dataclass(frozen=True)
class Robust(Wrapper):
    rule: str = "median"

    words: ClassVar[str] = "robust"

    def played(self, exchange: Exchange) -> Exchange:
        def up(s: Server, replies: Replies) -> Server:
            if len(replies) >= FEWEST:
                one = self.centre([reply.up for reply in replies])
                replies = [reply._replace(up=one) for reply in replies]
            return exchange.up(s, replies)

        return exchange._replace(up=up)

    def centre(self, ups: list[Message]) -> Message:
        """One upload that stands for all."""
        vectors = [[dense(v) for v in up if isinstance(v, Vec | Compressed)] for up in ups]
        centre = RULES[self.rule](rows(vectors))
        parts = iter(cut(centre, [len(v) for v in vectors[0]]))
        return type(ups[0])(*(combined(each, parts) for each in zip(*ups, strict=True)))


def dense(value: Any) -> Vec:
    found: Vec = value.dense() if isinstance(value, Compressed) else value
    return found


def combined(values: tuple[Any, ...], parts: Any) -> Any:
    """A field of the upload that stands for all: the next vector, or the median of numbers."""
    first = values[0]
    if isinstance(first, Vec):
        return next(parts)
    if isinstance(first, Compressed):
        return Compressed((Whole(next(parts)),))
    if isinstance(first, tuple):
        return tuple(median(each) for each in zip(*values, strict=True))
    return type(first)(median(values))
