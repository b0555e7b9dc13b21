"""ComParFreFL: ParFreFL that uploads compressed increments, with no step size to tune.

Yan et al., the ParFreFL and ComParFreFL paper, under review at ICLR 2026, Algorithm 2.

     1  require θ^0; m_i = (1/K) Σ_k ∇F(θ^0; ξ_i^k) and c_i = m_i for all i; c = mean of all c_i
     3  sample S clients; each starts at θ_i = θ
     7      m_i^k = (1 - β) m_i + β ∇F(θ_i; ξ)               m_i stays fixed during the round
     8      θ_i = θ_i - η m_i^k / ||m_i^k||                          K times
    10      m_i' = (1/K) Σ_k m_i^k
    11      δ_i = m_i' - c_i
    12      upload C(δ_i)
    13      c_i = c_i + C(δ_i)
    15  c = c + (1/N) Σ C(δ_i)
    16  g = (1/S) Σ C(δ_i) + c                                       with the old c
    17  θ = θ - γ g / ||g||
    18  download θ

Wire: d down, C(d) up. Memory: m_i and c_i. Tuning: none; Theorem 2's steps, whatever C is.
Deviations: the factor of line 15 is lost in the available text; it is 1/N, since the proof needs
c = mean of all c_i. C is contractive, applied to each parameter tensor, and may be another one at
every call. The steps are restored as ParFreFL's are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tunefree.core import About, Exchange, Oracle, Reply, System, Vec, gradient_opening, mean, unit
from tunefree.wire import TOP_5_PERCENT, Compressed, Compressor, demand


class Server(NamedTuple):
    theta: Vec
    c: Vec


class Client(NamedTuple):
    c_i: Vec
    m_i: Vec


class Down(NamedTuple):
    theta: Vec


class Up(NamedTuple):
    delta: Compressed


@dataclass(frozen=True)
class ComParFreFL:
    sys: System
    eta: float
    gamma: float
    beta: float
    C: Compressor = TOP_5_PERCENT

    about: ClassVar[About] = About(
        title="ComParFreFL",
        family="normalised, local momentum, compressed",
        paper="Yan et al., in review, 2026",
        steps={
            "eta": "1 / (K (S K T)^(1/4))",
            "gamma": "(S K)^(1/4) / T^(3/4)",
            "beta": "min(1, sqrt(S K / T))",
        },
        means={"c": "c_i"},
    )

    def __post_init__(self) -> None:
        demand(self.C, "contractive", self.about.title)

    @classmethod
    def theory(cls, sys: System) -> ComParFreFL:
        _, S, K, T = sys
        return cls(
            sys,
            eta=1 / (K * (S * K * T) ** 0.25),
            gamma=(S * K) ** 0.25 / T**0.75,
            beta=min(1.0, (S * K / T) ** 0.5),
        )

    def server(self, theta0: Vec) -> Server:
        return Server(theta0, c=0 * theta0)

    def client(self, theta0: Vec) -> Client:
        return Client(c_i=0 * theta0, m_i=0 * theta0)

    def opening(self) -> tuple[Exchange, ...]:
        return (  # 1
            gradient_opening(self.sys, lambda m: Client(m, m), lambda s, c: s._replace(c=c)),
        )

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Down, Up, lambda s: Down(s.theta), self.local, self.aggregate),)  # 18

    def local(self, client: Client, down: Down, F: Oracle) -> tuple[Client, Up]:
        (c_i, m_i), K, eta, beta = client, self.sys.K, self.eta, self.beta
        D, m_new = 0 * m_i, 0 * m_i  # θ_i = θ - η D
        for _ in range(K):
            m_k = (1 - beta) * m_i + beta * F.grad(down.theta - eta * D, F.draw())  # 7
            D = D + unit(m_k)  # 8
            m_new = m_new + m_k / K  # 10
        delta = self.C(m_new - c_i, F.rng)  # 11, 12
        return Client(c_i + delta.dense(), m_new), Up(delta)  # 13

    def aggregate(self, s: Server, replies: Sequence[Reply]) -> Server:
        N, S = self.sys.N, len(replies)
        delta = mean(r.up.delta.dense() for r in replies)
        return Server(
            theta=s.theta - self.gamma * unit(delta + s.c),  # 16, 17
            c=s.c + S / N * delta,  # 15
        )
