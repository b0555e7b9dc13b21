"""FedAvgM: FedAvg with momentum on the server.

Hsu, Qi, Brown, "Measuring the effects of non-identical data distribution for federated visual
classification", 2019 (lines numbered by us).

     1  require θ^0; v = 0
     2  sample S clients; each starts at θ_i = θ
     3      θ_i = θ_i - η ∇F(θ_i; ξ)                                 K times
     4      upload Δ_i = θ - θ_i
     5  v = μ v + mean_i Δ_i
     6  θ = θ - s v                                                  momentum "heavy-ball"
        or  θ = θ - s (mean_i Δ_i + μ v)                             momentum "nesterov"
     7  download θ

Wire: d down, d up. Memory: none. Tuning: η, s and μ.
Deviations: clients have equal weights. Some read the paper as meaning Nesterov's momentum; the
default here is heavy-ball. This is not the "FedAvg-M" of Cheng et al., which is FedCM.
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
class FedAvgM(LocalSGD):  # 2, 3, 4, 7
    s: float = 1.0
    mu: float = 0.9
    momentum: Literal["heavy-ball", "nesterov"] = "heavy-ball"

    about: ClassVar[About] = About(
        title="FedAvgM",
        family="averaging, server momentum",
        paper="Hsu, Qi, Brown, 2019",
        grid={
            "eta": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1),
            "s": (0.1, 0.3, 1.0),
            "mu": (0.7, 0.9, 0.97, 0.99),
        },
        weights="mean",
    )

    def server(self, theta0: Vec) -> Server:
        return Server(theta0, v=0 * theta0)  # 1

    def aggregate(self, s: Server, replies: Replies) -> Server:
        delta = mean(r.up.delta for r in replies)
        v = self.mu * s.v + delta  # 5
        move = delta + self.mu * v if self.momentum == "nesterov" else v
        return Server(s.theta - self.s * move, v)  # 6
