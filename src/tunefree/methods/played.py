"""Ways in which other methods can be played, too: decay, weighting, averaging.

Wire, memory and tuning are the method's, unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from tunefree.core import (
    Exchange,
    Message,
    Method,
    Replies,
    Server,
    Vec,
    Wrapper,
    about,
    options,
)
from tunefree.wire import Compressed
from tunefree.wire.compressed import Whole


@dataclass(frozen=True)
class Decayed(Wrapper):
    """Linear decay: in round t a tuned method takes 1 - t / T times its step.

    The step that decays is the server's own where a method has one (γ, η_s), otherwise the clients'
    (η; of FedSPS its bound η_b), which shortens the server's moves too. Everything else of the
    method stays as on its page. A late client works with the step of the round it was sent, the
    server with that of the current round. T must be known.
    """

    words: ClassVar[str] = "linear decay"
    formulas: ClassVar[Mapping[str, str]] = {"decay": "1 - t / T"}

    def at(self, t: int) -> Method:
        """The method with the steps of round t; the opening has those of round 0."""
        factor, steps = 1 - max(t, 0) / self.sys.T, options(self.inner)
        return replace(self.inner, **{name: factor * steps[name] for name in decaying(self.inner)})


def decaying(method: Method) -> list[str]:
    """The steps that decay.

    >>> from tunefree.methods import FedAdam
    >>> decaying(FedAdam())
    ['eta_s']
    """
    given = options(method)
    for names in (("gamma", "eta_s"), ("eta", "eta_b")):
        if found := [name for name in names if isinstance(given.get(name), float)]:
            return found
    return []


@dataclass(frozen=True)
class Weighted(Wrapper):
    """Weighting by examples: a client's upload has the weight n_i / Σ n_j, with n_i its samples.

    A server that only takes means of uploads gets them scaled by S n_i / Σ n_j, which is the same.
    One that does more with them takes the weights itself (`about.weights = "own"`). A server whose
    c must stay the mean of all clients' c_i cannot weight them.
    """

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


class Mean(NamedTuple):
    theta: Vec
    inner: Server
    t: int = 0


@dataclass(frozen=True)
class Averaged(Wrapper):
    """Averaging: what is handed out is a mean of the server's models; late ones count more.

        θ̄_{t+1} = θ̄_t + 9 / (t + 9) (θ_{t+1} - θ̄_t),  θ̄_0 = θ_0

    The method goes on from its own θ; the mean is what is evaluated and kept, as PolarFL does it.
    Its weights grow like t^8 (Shamir, Zhang, "Stochastic gradient descent for non-smooth
    optimization", ICML 2013, polynomial-decay averaging), so that the number of rounds need not be
    known. One more vector on the server.
    """

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
