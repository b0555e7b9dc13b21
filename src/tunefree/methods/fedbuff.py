"""FedBuff: local SGD from the model a client was given; a full buffer is averaged.

Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba, "Federated learning with buffered
asynchronous aggregation", AISTATS 2022, Algorithm 1 (lines numbered by us).

     1  receive θ as it was τ_i steps ago; θ_i = θ
     2      θ_i = θ_i - η ∇F(θ_i; ξ)                                 K times
     3  upload Δ_i = θ - θ_i
     4  when S uploads have come:
     5      v = μ v + (1/S) Σ w(τ_i) Δ_i                             w(τ) = 1 / sqrt(1 + τ), or 1
     6      θ = θ - s v                                              s is the paper's η_g
     7  send θ

Wire: d down, d up. Memory: none. Tuning: η and s (and the server momentum μ, 0 unless given).
Deviations: clients have equal weights; line 5 divides by S, not by the sum of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from tunefree.core import About, Replies, Vec, mean
from tunefree.methods.local_sgd import LocalSGD


class Server(NamedTuple):
    theta: Vec
    v: Vec


@dataclass(frozen=True)
class FedBuff(LocalSGD):  # 1, 2, 3, 7
    s: float = 1.0
    mu: float = 0.0
    weight: Literal["sqrt", "one"] = "sqrt"

    about: ClassVar[About] = About(
        title="FedBuff",
        family="asynchronous: averaging",
        paper="Nguyen et al., AISTATS 2022",
        grid={"eta": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1), "s": (0.3, 0.7, 1.0)},
        weights="mean",
    )

    def server(self, theta0: Vec) -> Server:
        return Server(theta0, v=0 * theta0)

    def aggregate(self, s: Server, replies: Replies) -> Server:
        v = self.mu * s.v + mean(self.w(r.tau) * r.up.delta for r in replies)  # 5
        return Server(s.theta - self.s * v, v)  # 6

    def w(self, tau: int) -> float:
        return float((1 + tau) ** -0.5) if self.weight == "sqrt" else 1.0
