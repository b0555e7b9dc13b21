"""FedProx: local steps that are pulled back towards the model they started from.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated optimization in heterogeneous networks",
MLSys 2020, Algorithm 2 (lines numbered by us).

     1  sample S clients; each starts at θ_i = θ
     2      θ_i = θ_i - η (∇F(θ_i; ξ) + μ (θ_i - θ))                 K times
     3      upload Δ_i = θ - θ_i
     4  θ = θ - s mean_i Δ_i
     5  download θ

Wire: d down, d up. Memory: none. Tuning: η and μ.
Deviations: the paper asks for an inexact minimum of F(θ_i) + (μ/2) ||θ_i - θ||^2, reached in any
number of steps; here K steps of SGD approximate it. Clients have equal weights, drawn uniformly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tunefree.core import About, Client, Oracle, Replies, mean
from tunefree.methods.local_sgd import LocalSGD, Model, Up


@dataclass(frozen=True)
class FedProx(LocalSGD):  # 1, 5
    s: float = 1.0
    mu: float = 0.01

    about: ClassVar[About] = About(
        title="FedProx",
        family="averaging, proximal",
        paper="Li et al., MLSys 2020",
        grid={"eta": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1), "mu": (1e-3, 1e-2, 1e-1, 1.0)},
        weights="mean",
    )

    def local(self, client: Client, down: Model, F: Oracle) -> tuple[Client, Up]:
        eta, mu = self.eta, self.mu
        D = 0 * down.theta  # θ_i - θ = -η D
        for _ in range(self.sys.K):
            D = D + F.grad(down.theta - eta * D, F.draw()) - mu * eta * D  # 2
        return client, Up(delta=eta * D)  # 3

    def aggregate(self, s: Model, replies: Replies) -> Model:
        return Model(s.theta - self.s * mean(r.up.delta for r in replies))  # 4
