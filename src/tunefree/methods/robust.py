"""Robust aggregation: a method whose server averages uploads gets a robust centre in their place.

An upload is one row: all its vectors, one after the other. f = max(1, ⌊n/3⌋) of n rows may be bad.

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
the vectors are replaced by their medians.

Where a server's c is the mean of all clients' c_i, uploads change c_i, and wrong ones would add up
there. So the server keeps every client's c_i, the sum of what it has sent, and after every exchange
c is n / N times the centre of the c_i of the n clients that were heard. Numbers stay as they are.

Wire, tuning: the method's. Memory: the method's; with c_i also one vector per client on the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, ClassVar, NamedTuple

from tunefree.core import (
    Exchange,
    Message,
    Replies,
    Server,
    Share,
    Vec,
    Wrapper,
    about,
    alone,
    own,
    share,
)
from tunefree.geometry import cut, lengths, rows
from tunefree.wire import Compressed, dense, is_vector
from tunefree.wire.compressed import Whole

FEWEST = 3  # uploads
WEISZFELD, CLIPPINGS = 8, 3  # iterations


def bad(n: int) -> int:
    """How many of n uploads may be bad.

    >>> [bad(n) for n in (3, 10, 50)]
    [1, 3, 16]
    """
    return max(1, n // 3)


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


class Known(NamedTuple):
    """A server that keeps what each client has sent."""

    theta: Vec
    inner: Server
    c_i: Vec  # a row per client, of all means that are vectors
    heard: Vec  # 1 for each client that has sent something


@dataclass(frozen=True)
class Robust(Wrapper):
    rule: str = "median"

    words: ClassVar[str] = "robust"

    def server(self, theta0: Vec) -> Server:
        first = self.inner.server(theta0)
        if not about(self.inner).means:
            return first
        d = sum(map(len, self.means(first)))
        return Known(theta0, first, theta0.new_zeros(self.sys.N, d), theta0.new_zeros(self.sys.N))

    def opening(self) -> tuple[Exchange, ...]:
        of_one = alone(self).opening()
        return tuple(map(self.replaced, self.inner.opening(), of_one))

    def round(self) -> tuple[Exchange, ...]:
        return tuple(map(self.replaced, self.inner.round(), alone(self).round()))

    def replaced(self, exchange: Exchange, of_one: Exchange) -> Exchange:
        means, one_alone = about(self.inner).means, alone(self)

        def up(s: Server, replies: Replies) -> Server:
            given = replies
            if len(replies) >= FEWEST:
                one = self.centre([reply.up for reply in replies])
                given = [r._replace(up=with_vectors(r.up, one) if means else one) for r in replies]
            if not means:
                return exchange.up(s, given)
            after, theta0 = exchange.up(s.inner, given), s.theta
            s = self.grown(s)._replace(theta=after.theta, inner=after)
            for r in replies:
                s.c_i[r.client] += self.row(share(one_alone, of_one.up, theta0, r))
                s.heard[r.client] = 1
            return self.centred(s)

        def down(s: Known) -> Message:
            return exchange.down(s.inner)

        return exchange._replace(up=up, down=down if means else exchange.down)

    def with_share(self, s: Server, client: int, before: Share, after: Share, N: int) -> Server:
        s = self.grown(s._replace(inner=self.inner.with_share(s.inner, client, before, after, N)))
        s.c_i[client] = self.row(after)
        s.heard[client] = float(bool(s.c_i[client].any()))
        return self.centred(s)

    def grown(self, s: Known) -> Known:
        """A copy with a row for each client."""
        n, (N, d) = len(s.heard), (self.sys.N, s.c_i.shape[1])
        c_i, heard = s.c_i.new_zeros(N, d), s.heard.new_zeros(N)
        c_i[:n], heard[:n] = s.c_i, s.heard
        return s._replace(c_i=c_i, heard=heard)

    def centred(self, s: Known) -> Known:
        """The server with the centre of what it has heard as its c."""
        rows_heard = s.c_i[s.heard > 0]
        if len(rows_heard) < FEWEST:
            return s
        centre = len(rows_heard) / self.sys.N * RULES[self.rule](rows_heard)
        inner = own(s.inner)
        parts = iter(cut(centre, list(map(len, self.means(inner)))))
        found = {c: next(parts) for c in about(self.inner).means if is_vector(getattr(inner, c))}
        return s._replace(inner=inner._replace(**found))

    def means(self, s: Server) -> list[Vec]:
        return [v for c in about(self.inner).means if is_vector(v := getattr(own(s), c))]

    def row(self, changes: Share) -> Vec:
        return rows([[v for v in changes.values() if is_vector(v)]])[0]

    def centre(self, ups: list[Message]) -> Message:
        """One upload that stands for all."""
        vectors = [[dense(v) for v in up if is_vector(v)] for up in ups]
        centre = RULES[self.rule](rows(vectors))
        parts = iter(cut(centre, [len(v) for v in vectors[0]]))
        return type(ups[0])(*(combined(each, parts) for each in zip(*ups, strict=True)))


def with_vectors(up: Message, centre: Message) -> Message:
    """The upload with the centre's vectors in place of its own."""
    pairs = zip(up, centre, strict=True)
    return type(up)(*(theirs if is_vector(theirs) else value for value, theirs in pairs))


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
