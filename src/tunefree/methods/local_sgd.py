"""Local SGD: a round of FedAvg's clients, for methods that change only what the server does.

     1  each sampled client starts at θ_i = θ
     2      θ_i = θ_i - η ∇F(θ_i; ξ)                                 K times
     3      upload Δ_i = θ - θ_i

Wire: d down, d up. Memory: none. Rounds are those of `fedavg.py`, bit for bit.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from tunefree.core import Client, Exchange, Message, Method, Oracle, Replies, Server, Vec
from tunefree.wire import Compressed

__all__ = ["LocalSGD", "Model", "Sent", "Up"]


class Model(NamedTuple):
    """What a server sends, and all that one without memory has."""

    theta: Vec


class Up(NamedTuple):
    delta: Vec


class Sent(NamedTuple):
    delta: Compressed


@dataclass(frozen=True)
class LocalSGD(Method):
    eta: float = 0.1

    def server(self, theta0: Vec) -> Server:
        return Model(theta0)

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Model, Up, self.broadcast, self.local, self.aggregate),)

    def broadcast(self, s: Server) -> Model:
        return Model(s.theta)

    def local(self, client: Client, down: Model, F: Oracle) -> tuple[Client, Message]:
        D = 0 * down.theta  # θ_i = θ - η D
        for _ in range(self.sys.K):
            D = D + F.grad(down.theta - self.eta * D, F.draw())  # 2
        return client, Up(delta=self.eta * D)  # 3

    @abstractmethod
    def aggregate(self, s: Server, replies: Replies) -> Server:
        """What the server does with the Δ_i."""
