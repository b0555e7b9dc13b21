"""PAdaMFed: normalised steps, momentum and control variates, with no step size to tune.

Yan, Zhang, Wang, Cao, "Problem-parameter-free federated learning", ICLR 2025, Algorithm 1.

     1  require θ^0; c_i = (1/K) Σ_k ∇F(θ^0; ξ_i^k) for all i; c = mean of all c_i; g = c
     3  sample S clients; each starts at θ_i = θ
     7      g_i = β (∇F(θ_i; ξ) - c_i + c) + (1 - β) g
     8      θ_i = θ_i - η g_i / ||g_i||                              K times
    10      c_i' = mean of the K gradients of line 7
    11      upload θ_i and c_i'
    13  ḡ = (1 / (η S K)) Σ (θ - θ_i)
    14  θ = θ - γ ḡ
    15  c = c + (1/N) Σ (c_i' - c_i)
    16  g = β ((1/S) Σ (c_i' - c_i) + c) + (1 - β) g                 with the old c
    17  download θ and β c + (1 - β) g

Wire: 2d down, 2d up. Memory: c_i. Tuning: none; the steps are Theorem 1's.
Deviations: line 10 prints k = 1..K, the text's equation (2) and the other version of the listing
0..K-1, which we use; line 11 uploads the displacement D/K and the increment c_i' - c_i.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tunefree.core import OPEN, About, Oracle, Replies, Step, mean, unit
from tunefree.methods.control import Client, Momentum, Steered, Up, WithMomentum


@dataclass(frozen=True)
class PAdaMFed(Momentum):  # 1
    eta: float = OPEN
    gamma: float = OPEN
    beta: float = OPEN

    about: ClassVar[About] = About(
        title="PAdaMFed",
        family="normalised, momentum, control variate",
        paper="Yan, Zhang, Wang, Cao, ICLR 2025",
        steps={
            "eta": Step("1 / (K sqrt(T))", lambda K, T: 1 / (K * T**0.5)),
            "gamma": Step("(S K)^(1/4) / T^(3/4)", lambda S, K, T: (S * K) ** 0.25 / T**0.75),
            "beta": Step("min(1, sqrt(S K / T))", lambda S, K, T: min(1.0, (S * K / T) ** 0.5)),
        },
        bounds={"delta": 1},
        means={"c": "c_i"},
        sums={},
    )

    def broadcast(self, s: WithMomentum) -> Steered:
        return Steered(s.theta, self.beta * s.c + (1 - self.beta) * s.g)  # 17

    def local(self, client: Client, down: Steered, F: Oracle) -> tuple[Client, Up]:
        (c_i,), K, eta, beta = client, self.sys.K, self.eta, self.beta
        D, c_new = 0 * c_i, 0 * c_i  # θ_i = θ - η D
        u_i = down.u - beta * c_i  # 7 without its gradient
        for _ in range(K):
            grad = F.grad(down.theta.sub(D, alpha=eta), F.draw())
            D += unit(u_i.add(grad, alpha=beta))  # 7, 8
            c_new.add_(grad, alpha=1 / K)  # 10
        return Client(c_new), Up(delta=D / K, dc=c_new - c_i)  # 11

    def aggregate(self, s: WithMomentum, replies: Replies) -> WithMomentum:
        N, S, beta = self.sys.N, len(replies), self.beta
        delta, dc = mean(r.up.delta for r in replies), mean(r.up.dc for r in replies)  # 13
        return WithMomentum(
            theta=s.theta - self.gamma * delta,  # 14
            c=s.c + S / N * dc,  # 15
            g=beta * (dc + s.c) + (1 - beta) * s.g,  # 16
        )
