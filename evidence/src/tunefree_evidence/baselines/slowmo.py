"""SlowMo: a slow momentum over rounds, in units of the local step.

Wang, Tantia, Ballas, Rabbat, "SlowMo: improving communication-efficient distributed SGD with slow
momentum", ICLR 2020, Algorithm 1 (lines numbered by us).

     1  require θ^0; u = 0
     2  sample S clients; each starts at θ_i = θ
     3      θ_i = θ_i - η ∇F(θ_i; ξ)                                 K times
     4      upload Δ_i = θ - θ_i
     5  u = μ u + mean_i Δ_i / η
     6  θ = θ - s η u
     7  download θ

Wire: d down, d up. Memory: none. Tuning: η and μ (s = 1); the paper's α and β are s and μ.
Deviations: the local method is plain SGD, so there are no buffers to reset; η is constant, and
then this is FedAvgM; published for all clients, here the mean is over the S of the round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tunefree.core import About, Replies, Vec, mean
from tunefree.methods.local_sgd import LocalSGD


class Server(NamedTuple):
    theta: Vec
    u: Vec


@dataclass(frozen=True)
class SlowMo(LocalSGD):  # 2, 3, 4, 7
    s: float = 1.0
    mu: float = 0.5

    about: ClassVar[About] = About(
        title="SlowMo",
        family="averaging, server momentum",
        paper="Wang, Tantia, Ballas, Rabbat, ICLR 2020",
        grid={"eta": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1), "mu": (0.5, 0.7, 0.8)},
        weights="mean",
    )

    def server(self, theta0: Vec) -> Server:
        return Server(theta0, u=0 * theta0)  # 1

    def aggregate(self, s: Server, replies: Replies) -> Server:
        u = self.mu * s.u + mean(r.up.delta for r in replies) / self.eta  # 5
        return Server(s.theta - self.s * self.eta * u, u)  # 6
