"""Averaging: the model handed out is a mean of the server's models in which late ones count more.

    θ̄_{t+1} = θ̄_t + 9 / (t + 9) (θ_{t+1} - θ̄_t),  θ̄_0 = θ_0

The method goes on from its own θ; the mean is what is evaluated and kept, as PolarFL does it. Its
weights grow like t^8 (Shamir, Zhang, "Stochastic gradient descent for non-smooth optimization",
ICML 2013, polynomial-decay averaging), so that the number of rounds need not be known.

Wire, tuning: the method's. Memory: one more vector on the server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tunefree.core import Exchange, Message, Replies, Server, Vec, Wrapper


class Mean(NamedTuple):
    theta: Vec
    inner: Server
    t: int = 0


@dataclass(frozen=True)
class Averaged(Wrapper):
    words: ClassVar[str] = "averaged"

    def server(self, theta0: Vec) -> Mean:
        return Mean(theta0, self.inner.server(theta0))

    def round(self) -> tuple[Exchange, ...]:
        *before, last = super().round()

        def up(s: Mean, replies: Replies) -> Mean:
            after: Mean = last.up(s, replies)
            theta = s.theta + 9 / (s.t + 9) * (after.inner.theta - s.theta)
            return Mean(theta, after.inner, s.t + 1)

        return (*before, last._replace(up=up))

    def played(self, exchange: Exchange) -> Exchange:
        """An exchange of the method's own server."""

        def down(s: Mean) -> Message:
            return exchange.down(s.inner)

        def up(s: Mean, replies: Replies) -> Mean:
            return s._replace(inner=exchange.up(s.inner, replies))

        return exchange._replace(down=down, up=up)
