"""Weighting by examples: a client's upload has the weight n_i / Σ n_j, with n_i its samples.

A server that only takes means of uploads gets them scaled by S n_i / Σ n_j, which is the same. One
that does more with them takes the weights itself (`about.weights = "own"`). A server whose c must
stay the mean of all clients' c_i cannot weight them.

Wire, memory, tuning: the method's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tunefree.core import Exchange, Message, Replies, Server, Vec, Wrapper, about
from tunefree.wire import Compressed
from tunefree.wire.compressed import Whole


@dataclass(frozen=True)
class Weighted(Wrapper):
    words: ClassVar[str] = "by examples"

    def played(self, exchange: Exchange) -> Exchange:
        by_itself, up = about(self.inner).weights == "own", exchange.up

        def weighted(s: Server, replies: Replies) -> Server:
            sizes = [reply.n for reply in replies]
            if by_itself:
                own: Any = up
                return own(s, replies, sizes)
            each = len(sizes) / sum(sizes)
            return up(s, [r._replace(up=times(each * r.n, r.up)) for r in replies])

        return exchange._replace(up=weighted)


def times(w: float, up: Message) -> Message:
    """An upload with all values that can be averaged multiplied by w."""
    return type(up)(*(scaled(w, value) for value in up))


def scaled(w: float, value: Any) -> Any:
    if isinstance(value, Compressed):
        return Compressed((Whole(w * value.dense()),))  # it stays on the server
    if isinstance(value, tuple):
        return tuple(w * number for number in value)
    return w * value if isinstance(value, Vec | float) else value
