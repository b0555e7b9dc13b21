"""SCAFFOLD-M: SCAFFOLD with momentum in the local direction.

Cheng, Huang, Wu, Yuan, "Momentum benefits non-iid federated learning simply and provably",
ICLR 2024 (lines numbered by us).

     1  require θ^0; c_i = (1/K) Σ_k ∇F(θ^0; ξ_i^k) for all i; c = mean of all c_i; g = c
     2  sample S clients; each starts at θ_i = θ
     3      g_i = β (∇F(θ_i; ξ) - c_i + c) + (1 - β) g
     4      θ_i = θ_i - η g_i                                        K times
     5      c_i' = mean of the K gradients of line 3
     6      upload θ - θ_i and c_i' - c_i
     7  g = mean_i (θ - θ_i) / (η K)
     8  θ = θ - γ g                                                  γ = s η K
     9  c = c + (1/N) Σ (c_i' - c_i)
    10  download θ and β c + (1 - β) g

Wire: 2d down, 2d up. Memory: c_i. Tuning: η, s (or γ) and β.
Deviations: no official code was found; the rule is the one that the PAdaMFed paper quotes.
`gamma`, where given, replaces s η K.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tunefree.core import About, Oracle, Replies, mean
from tunefree.methods.control import Client, Momentum, Steered, Up, WithMomentum


@dataclass(frozen=True)
class ScaffoldM(Momentum):  # 1
    eta: float = 0.1
    beta: float = 0.2
    s: float = 1.0
    gamma: float | None = None

    about: ClassVar[About] = About(
        title="SCAFFOLD-M",
        family="momentum, control variate",
        paper="Cheng, Huang, Wu, Yuan, ICLR 2024",
        grid={
            "eta": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1),
            "s": (0.5, 1.0, 2.0),
            "beta": (0.1, 0.2, 0.5),
        },
        means={"c": "c_i"},
        sums={},
    )

    def broadcast(self, s: WithMomentum) -> Steered:
        return Steered(s.theta, self.beta * s.c + (1 - self.beta) * s.g)  # 10

    def local(self, client: Client, down: Steered, F: Oracle) -> tuple[Client, Up]:
        (c_i,), K, eta, beta = client, self.sys.K, self.eta, self.beta
        D, c_new = 0 * c_i, 0 * c_i  # θ_i = θ - η D
        for _ in range(K):
            grad = F.grad(down.theta - eta * D, F.draw())
            D = D + beta * (grad - c_i) + down.u  # 3, 4
            c_new = c_new + grad / K  # 5
        return Client(c_new), Up(delta=D / K, dc=c_new - c_i)  # 6

    def aggregate(self, s: WithMomentum, replies: Replies) -> WithMomentum:
        N, S = self.sys.N, len(replies)
        gamma = self.s * self.eta * self.sys.K if self.gamma is None else self.gamma
        g = mean(r.up.delta for r in replies)  # 7
        return WithMomentum(
            theta=s.theta - gamma * g,  # 8
            c=s.c + S / N * mean(r.up.dc for r in replies),  # 9
            g=g,
        )
