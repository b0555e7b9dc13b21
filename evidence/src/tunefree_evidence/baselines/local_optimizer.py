"""Local optimizers: each client trains with one of its own, and the server averages the models.

     1  each sampled client starts at θ_i = θ, with its optimizer as it left it
     2      θ_i = θ_i - one step of its optimizer for ∇F(θ_i; ξ)     K times
     3      upload Δ_i = θ - θ_i
     4  θ = θ - mean_i Δ_i

Wire: d down, d up. Memory: what the optimizer keeps.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from tunefree.core import Client, Exchange, Message, Method, Oracle, Replies, Server, Vec, mean
from tunefree.methods.local_sgd import Model, Up


@dataclass(frozen=True)
class LocalOptimizer(Method):
    def server(self, theta0: Vec) -> Server:
        return Model(theta0)

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Model, Up, self.broadcast, self.local, self.aggregate),)

    def broadcast(self, s: Server) -> Message:
        return Model(s.theta)

    def local(self, client: Client, down: Message, F: Oracle) -> tuple[Client, Message]:
        run, delta = self.begin(client, down), 0 * down.theta  # 1: θ_i = θ - Δ_i
        for _ in range(self.sys.K):
            theta_i = down.theta - delta
            run, step = self.step(run, theta_i, F.grad(theta_i, F.draw()))
            delta = delta + step  # 2
        return self.end(client, run, delta)  # 3

    def aggregate(self, s: Server, replies: Replies) -> Server:
        return Model(s.theta - mean(r.up.delta for r in replies))  # 4

    def begin(self, client: Client, down: Message) -> Any:
        """The optimizer at the start of a round."""
        return client

    @abstractmethod
    def step(self, run: Any, theta_i: Vec, grad: Vec) -> tuple[Any, Vec]:
        """The optimizer after one gradient, and what it takes from θ_i."""

    def end(self, client: Client, run: Any, delta: Vec) -> tuple[Client, Message]:
        """What a client remembers and uploads."""
        return run, Up(delta)
