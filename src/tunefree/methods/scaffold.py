"""SCAFFOLD: control variates against client drift.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, "SCAFFOLD: stochastic controlled averaging for
federated learning", ICML 2020, Algorithm 1.

     1  require θ^0; c = 0 and c_i = 0
     4  sample S clients; each starts at θ_i = θ
    10      θ_i = θ_i - η (∇F(θ_i; ξ) - c_i + c)                     K times
    12      c_i' = ∇f_i(θ)                            option "I", one pass over all local data
        or  c_i' = c_i - c + (θ - θ_i) / (η K)        option "II"
    13      upload θ - θ_i and c_i' - c_i
    17  θ = θ - s mean_i (θ - θ_i);  c = c + (1/N) Σ (c_i' - c_i)
     5  download θ and c

Wire: 2d down, 2d up. Memory: c_i. Tuning: η and s.
Deviations: none in the formulas; `start = "gradients"` opens with batch gradients at θ^0 as
SCAFFOLD-M does, for comparisons from the same start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tunefree.core import About, Exchange, Oracle, Replies, mean
from tunefree.methods.control import Client, Controlled, ControlVariates, Up


@dataclass(frozen=True)
class Scaffold(ControlVariates):  # 1, 5
    eta: float = 0.1
    s: float = 1.0
    option: Literal["I", "II"] = "II"
    start: Literal["zero", "gradients"] = "zero"

    about: ClassVar[About] = About(
        title="SCAFFOLD",
        family="control variate",
        paper="Karimireddy et al., ICML 2020",
        grid={"eta": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1), "s": (0.5, 1.0)},
        means={"c": "c_i"},
        sums={},
    )

    def opening(self) -> tuple[Exchange, ...]:
        return super().opening() if self.start == "gradients" else ()

    def local(self, client: Client, down: Controlled, F: Oracle) -> tuple[Client, Up]:
        (c_i,), K, eta = client, self.sys.K, self.eta
        D = 0 * c_i  # θ_i = θ - η D
        for _ in range(K):
            D = D + F.grad(down.theta - eta * D, F.draw()) - c_i + down.c  # 10
        c_new = F.full_grad(down.theta) if self.option == "I" else c_i - down.c + D / K  # 12
        return Client(c_new), Up(delta=eta * D, dc=c_new - c_i)  # 13

    def aggregate(self, s: Controlled, replies: Replies) -> Controlled:
        N, S = self.sys.N, len(replies)
        return Controlled(
            theta=s.theta - self.s * mean(r.up.delta for r in replies),  # 17
            c=s.c + S / N * mean(r.up.dc for r in replies),  # 17
        )
