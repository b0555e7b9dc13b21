"""SCAFFOLD + normalisation: PAdaMFed without its momentum, the ablation that should perform badly.

Yan, Zhang, Wang, Cao, "Problem-parameter-free federated learning", ICLR 2025, Figure 5 of the
review version; the lines are those of its Algorithm 1 at β = 1.

     1  require θ^0; c_i = (1/K) Σ_k ∇F(θ^0; ξ_i^k) for all i; c = mean of all c_i
     7      g_i = ∇F(θ_i; ξ) - c_i + c
     8      θ_i = θ_i - η g_i / ||g_i||                              K times
    10      c_i' = mean of the K gradients of line 7
    11      upload θ_i and c_i'
    14  θ = θ - γ (1 / (η S K)) Σ (θ - θ_i)
    15  c = c + (1/N) Σ (c_i' - c_i)
    17  download θ and c

Wire: 2d down, 2d up. Memory: c_i. Tuning: η and γ, or PAdaMFed's theorem steps.
Deviations: as PAdaMFed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tunefree.core import OPEN, About, Oracle, Replies, Step, mean, unit
from tunefree.methods.control import Client, Controlled, ControlVariates, Up


@dataclass(frozen=True)
class ScaffoldNorm(ControlVariates):  # 1, 17
    eta: float = OPEN
    gamma: float = OPEN

    about: ClassVar[About] = About(
        title="SCAFFOLD+norm",
        family="ablation: normalised, control variate",
        paper="Yan, Zhang, Wang, Cao, ICLR 2025",
        steps={
            "eta": Step("1 / (K sqrt(T))", lambda K, T: 1 / (K * T**0.5)),
            "gamma": Step("(S K)^(1/4) / T^(3/4)", lambda S, K, T: (S * K) ** 0.25 / T**0.75),
        },
        grid={"eta": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1), "gamma": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)},
        bounds={"delta": 1},
        means={"c": "c_i"},
        sums={},
    )

    def local(self, client: Client, down: Controlled, F: Oracle) -> tuple[Client, Up]:
        (c_i,), K, eta = client, self.sys.K, self.eta
        D, c_new = 0 * c_i, 0 * c_i  # θ_i = θ - η D
        for _ in range(K):
            grad = F.grad(down.theta - eta * D, F.draw())
            D = D + unit(grad - c_i + down.c)  # 7, 8
            c_new = c_new + grad / K  # 10
        return Client(c_new), Up(delta=D / K, dc=c_new - c_i)  # 11

    def aggregate(self, s: Controlled, replies: Replies) -> Controlled:
        N, S = self.sys.N, len(replies)
        return Controlled(
            theta=s.theta - self.gamma * mean(r.up.delta for r in replies),  # 14
            c=s.c + S / N * mean(r.up.dc for r in replies),  # 15
        )
