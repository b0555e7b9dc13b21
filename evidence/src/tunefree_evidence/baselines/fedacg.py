"""FedACG: clients start where the server's momentum would lead, and stay near that point.

Kim, Kim, Han, "Communication-efficient federated learning with accelerated client gradient", CVPR
2024 (lines numbered by us; m points back, μ is the paper's β).

     1  require θ^0; m = 0
     2  sample S clients; each starts at θ_i = y = θ - s λ m
     3      θ_i = θ_i - η (∇F(θ_i; ξ) + μ (θ_i - y))                 K times
     4      upload Δ_i = y - θ_i
     5  m = λ m + mean_i Δ_i;  θ = θ - s m
     6  download y

Wire: d down, d up. Memory: none. Tuning: η, λ and μ.
Deviations: none known in the formulas, which are read from the authors' code; s is ours, and with
s = 1, as published, θ becomes the mean of the θ_i. θ is evaluated, not y.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from tunefree.core import About, Replies, Vec, mean
from tunefree.core import Server as State
from tunefree.methods import FedProx


class Server(NamedTuple):
    theta: Vec
    m: Vec


@dataclass(frozen=True)
class FedACG(FedProx):  # 3, 4
    lam: float = 0.85

    about: ClassVar[About] = About(
        title="FedACG",
        family="averaging, proximal, momentum looked ahead",
        paper="Kim, Kim, Han, CVPR 2024",
        grid={"eta": (3e-3, 1e-2, 3e-2, 1e-1), "lam": (0.7, 0.85, 0.95), "mu": (1e-3, 1e-2)},
        weights="mean",
    )

    def server(self, theta0: Vec) -> Server:
        return Server(theta0, m=0 * theta0)  # 1

    def broadcast(self, s: State) -> Any:
        return super().broadcast(s._replace(theta=s.theta - self.s * self.lam * s.m))  # 2, 6

    def aggregate(self, s: State, replies: Replies) -> State:
        m = self.lam * s.m + mean(r.up.delta for r in replies)  # 5
        return Server(s.theta - self.s * m, m)
