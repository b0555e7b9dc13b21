"""Control variates: every client has c_i, and the server their mean c.

    c_i = (1/K) Σ_k ∇F(θ^0; ξ_i^k) for all i, c = mean of all c_i     the opening, if there is one
    c = c + (1/N) Σ (c_i' - c_i)                                      from the uploads of a round

With momentum the server also has g, and sends β c + (1 - β) g; the opening sets g = c.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

from tunefree.core import Exchange, Message, Method, Oracle, Replies, Server, Vec, gradient_opening

__all__ = [
    "Client",
    "ControlVariates",
    "Controlled",
    "Momentum",
    "Steered",
    "Up",
    "WithMomentum",
]


class Controlled(NamedTuple):
    """What a server has, and sends."""

    theta: Vec
    c: Vec


class WithMomentum(NamedTuple):
    """What a server has."""

    theta: Vec
    c: Vec
    g: Vec


class Steered(NamedTuple):
    """What it sends."""

    theta: Vec
    u: Vec


class Client(NamedTuple):
    c_i: Vec


class Up(NamedTuple):
    delta: Vec
    dc: Vec


@dataclass(frozen=True)
class ControlVariates(Method):
    def server(self, theta0: Vec) -> Server:
        return Controlled(theta0, c=0 * theta0)

    def client(self, theta0: Vec) -> Any:
        return Client(c_i=0 * theta0)

    def opening(self) -> tuple[Exchange, ...]:
        return (gradient_opening(self.sys, Client, lambda s, c: s._replace(c=c)),)

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Controlled, Up, lambda s: s, self.local, self.aggregate),)

    @abstractmethod
    def local(self, client: Any, down: Message, F: Oracle) -> tuple[Any, Message]:
        """What a client does."""

    @abstractmethod
    def aggregate(self, s: Server, replies: Replies) -> Server:
        """What the server does with the uploads."""


@dataclass(frozen=True)
class Momentum(ControlVariates):
    def server(self, theta0: Vec) -> Server:
        return WithMomentum(theta0, c=0 * theta0, g=0 * theta0)

    def opening(self) -> tuple[Exchange, ...]:
        return (gradient_opening(self.sys, Client, lambda s, c: s._replace(c=c, g=c)),)

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Steered, Up, self.broadcast, self.local, self.aggregate),)

    @abstractmethod
    def broadcast(self, s: Server) -> Message:
        """What the server sends."""
