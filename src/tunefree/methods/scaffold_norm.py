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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tunefree.core import About, Exchange, Oracle, Reply, System, Vec, gradient_opening, mean, unit


class Server(NamedTuple):
    theta: Vec
    c: Vec


class Client(NamedTuple):
    c_i: Vec


class Down(NamedTuple):
    theta: Vec
    c: Vec


class Up(NamedTuple):
    delta: Vec
    dc: Vec


@dataclass(frozen=True)
class ScaffoldNorm:
    sys: System
    eta: float
    gamma: float

    about: ClassVar[About] = About(
        title="SCAFFOLD+norm",
        family="ablation: normalised, control variate",
        paper="Yan, Zhang, Wang, Cao, ICLR 2025",
        steps={"eta": "1 / (K sqrt(T))", "gamma": "(S K)^(1/4) / T^(3/4)"},
        grid={"eta": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1), "gamma": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)},
        bounds={"delta": 1},
        means={"c": "c_i"},
    )

    @classmethod
    def theory(cls, sys: System) -> ScaffoldNorm:
        _, S, K, T = sys
        return cls(sys, eta=1 / (K * T**0.5), gamma=(S * K) ** 0.25 / T**0.75)

    def server(self, theta0: Vec) -> Server:
        return Server(theta0, c=0 * theta0)

    def client(self, theta0: Vec) -> Client:
        return Client(c_i=0 * theta0)

    def opening(self) -> tuple[Exchange, ...]:
        return (gradient_opening(self.sys, Client, lambda s, c: s._replace(c=c)),)  # 1

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Down, Up, lambda s: Down(s.theta, s.c), self.local, self.aggregate),)  # 17

    def local(self, client: Client, down: Down, F: Oracle) -> tuple[Client, Up]:
        (c_i,), K, eta = client, self.sys.K, self.eta
        D, c_new = 0 * c_i, 0 * c_i  # θ_i = θ - η D
        for _ in range(K):
            grad = F.grad(down.theta - eta * D, F.draw())
            D = D + unit(grad - c_i + down.c)  # 7, 8
            c_new = c_new + grad / K  # 10
        return Client(c_new), Up(delta=D / K, dc=c_new - c_i)  # 11

    def aggregate(self, s: Server, replies: Sequence[Reply]) -> Server:
        N, S = self.sys.N, len(replies)
        return Server(
            theta=s.theta - self.gamma * mean(r.up.delta for r in replies),  # 14
            c=s.c + S / N * mean(r.up.dc for r in replies),  # 15
        )
