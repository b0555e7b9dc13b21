"""FedCM: the last round's direction is part of every local step.

Xu, Wang, Wang, Yao, "FedCM: federated learning with client-level momentum", 2021 (lines numbered
by us; g is the paper's Δ of the last round, β its α).

     1  require θ^0; g = 0
     2  sample S clients; each starts at θ_i = θ
     3      θ_i = θ_i - η (β ∇F(θ_i; ξ) + (1 - β) g)                 K times
     4      upload Δ_i = (θ - θ_i) / (η K)
     5  g = mean_i Δ_i
     6  θ = θ - s η K g
     7  download θ and g

Wire: 2d down, d up. Memory: none. Tuning: η, s and β.
Deviations: none in the formulas; the upload is divided by η K on the client, not on the server.
The first round's steps are β times smaller than the others', as published.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tunefree.core import About, Exchange, Method, NoState, Oracle, Replies, Vec, mean
from tunefree.methods.local_sgd import Up


class Directed(NamedTuple):
    """What the server has, and sends."""

    theta: Vec
    g: Vec


@dataclass(frozen=True)
class FedCM(Method):
    eta: float = 0.1
    beta: float = 0.1
    s: float = 1.0

    about: ClassVar[About] = About(
        title="FedCM",
        family="averaging, client-level momentum",
        paper="Xu, Wang, Wang, Yao, 2021",
        grid={
            "eta": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1),
            "beta": (0.05, 0.1, 0.3),
            "s": (0.3, 1.0),
        },
        weights="mean",
    )

    def server(self, theta0: Vec) -> Directed:
        return Directed(theta0, g=0 * theta0)  # 1

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Directed, Up, lambda s: s, self.local, self.aggregate),)  # 7

    def local(self, client: NoState, down: Directed, F: Oracle) -> tuple[NoState, Up]:
        (theta, g), K, eta, beta = down, self.sys.K, self.eta, self.beta
        D = 0 * theta  # θ_i = θ - η D
        for _ in range(K):
            D = D + beta * F.grad(theta - eta * D, F.draw()) + (1 - beta) * g  # 3
        return client, Up(delta=D / K)  # 4

    def aggregate(self, s: Directed, replies: Replies) -> Directed:
        g = mean(r.up.delta for r in replies)  # 5
        return Directed(s.theta - self.s * self.eta * self.sys.K * g, g)  # 6
