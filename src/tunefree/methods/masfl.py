"""MasFL: momentum and control variates when clients answer late.

Yan, Zhong, Wang, Zhang, "Momentum-driven adaptivity: towards tuning-free asynchronous federated
learning", ICML 2025, Algorithms 1 (server) and 2 (client; lines marked c).

     1  require θ^0; c_i = (1/K) Σ_k ∇F(θ^0; ξ_i^k) for all i; c = mean of all c_i; g = c
    c1  receive θ and β c + (1 - β) g as they were τ_i steps ago; θ_i = θ
    c3      g_i = β (∇F(θ_i; ξ) - c_i + c) + (1 - β) g
    c4      θ_i = θ_i - η g_i                                        K times
    c6  upload c_i' = mean of the K gradients of line c3
     3  when S uploads have come:
     5      g = β ((1/S) Σ (c_i' - c_i) + c) + (1 - β) g
     6      θ = θ - γ g                                              with the new g
     7      c = c + (1/N) Σ (c_i' - c_i)                             4: the server's c_i = c_i'
     8  send θ and β c + (1 - β) g

Wire: 2d down, d up. Memory: c_i. Tuning: η and γ; β is Theorem 1's.
Deviations: line c6 uploads the increment c_i' - c_i, so the server stores no table of N vectors; a
client's next job starts after its upload was used, so that its c_i is the server's. Theorem 1 also
has γ = β / (4L) and a bound on η, but they need L and the largest delay; β is clipped at 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tunefree.core import OPEN, About, Exchange, Oracle, Replies, Step, Vec, mean
from tunefree.methods.control import Client, Momentum, Steered, WithMomentum


class Up(NamedTuple):
    dc: Vec


@dataclass(frozen=True)
class MasFL(Momentum):  # 1
    beta: float = OPEN
    eta: float = 0.03
    gamma: float = 0.3

    about: ClassVar[About] = About(
        title="MasFL",
        family="asynchronous: momentum, control variate",
        paper="Yan, Zhong, Wang, Zhang, ICML 2025",
        steps={
            "beta": Step("min(1, sqrt(S K / T))", lambda S, K, T: min(1.0, (S * K / T) ** 0.5)),
        },
        grid={"eta": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1), "gamma": (0.03, 0.1, 0.3, 1.0)},
        means={"c": "c_i"},
        sums={},
    )

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Steered, Up, self.broadcast, self.local, self.aggregate),)

    def broadcast(self, s: WithMomentum) -> Steered:
        return Steered(s.theta, self.beta * s.c + (1 - self.beta) * s.g)  # 8

    def local(self, client: Client, down: Steered, F: Oracle) -> tuple[Client, Up]:
        (c_i,), K, eta, beta = client, self.sys.K, self.eta, self.beta
        D, c_new = 0 * c_i, 0 * c_i  # θ_i = θ - η D
        for _ in range(K):
            grad = F.grad(down.theta - eta * D, F.draw())
            D = D + beta * (grad - c_i) + down.u  # c3, c4
            c_new = c_new + grad / K
        return Client(c_new), Up(dc=c_new - c_i)  # c6

    def aggregate(self, s: WithMomentum, replies: Replies) -> WithMomentum:
        N, S, beta = self.sys.N, len(replies), self.beta
        dc = mean(r.up.dc for r in replies)
        g = beta * (dc + s.c) + (1 - beta) * s.g  # 5
        return WithMomentum(theta=s.theta - self.gamma * g, c=s.c + S / N * dc, g=g)  # 6, 7
