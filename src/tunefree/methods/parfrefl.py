"""ParFreFL: local momentum and a normalised server step, half the traffic of PAdaMFed.

Yan et al., the ParFreFL and ComParFreFL paper, under review at ICLR 2026, Algorithm 1.

     1  require θ^0; m_i = (1/K) Σ_k ∇F(θ^0; ξ_i^k) and c_i = m_i for all i; c = mean of all c_i
     3  sample S clients; each starts at θ_i = θ
     7      m_i^k = (1 - β) m_i + β ∇F(θ_i; ξ)               m_i stays fixed during the round
     8      θ_i = θ_i - η m_i^k / ||m_i^k||                          K times
    10      upload m_i' = (1/K) Σ_k m_i^k
    13  c = c + (1/N) Σ (m_i' - m_i)
    14  g = (1/S) Σ (m_i' - m_i) + c                                 with the old c
    15  θ = θ - γ g / ||g||
    16  download θ

Wire: d down, d up. Memory: m_i (c_i equals it at all times). Tuning: none; Theorem 1's steps.
Deviations: line 10 uploads the increment m_i' - m_i, so that the server stores no table. The
theorem's formulas are damaged in the available text; ours are restored from Theorem 2, from the
terms of the bound and from a public review that quotes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tunefree.core import (
    OPEN,
    About,
    Exchange,
    Method,
    Oracle,
    Replies,
    Step,
    Vec,
    gradient_opening,
    mean,
    unit,
)
from tunefree.methods.control import Controlled
from tunefree.methods.local_sgd import Model


class Client(NamedTuple):
    m_i: Vec


class Up(NamedTuple):
    dm: Vec


@dataclass(frozen=True)
class LocalMomentum(Method):
    """What ParFreFL and ComParFreFL share."""

    eta: float = OPEN
    gamma: float = OPEN
    beta: float = OPEN

    def server(self, theta0: Vec) -> Controlled:
        return Controlled(theta0, c=0 * theta0)

    def momentum(self, m_i: Vec, theta: Vec, F: Oracle) -> Vec:
        """m_i' after K local steps."""
        K, eta, beta = self.sys.K, self.eta, self.beta
        D, m_new = 0 * m_i, 0 * m_i  # θ_i = θ - η D
        for _ in range(K):
            m_k = (1 - beta) * m_i + beta * F.grad(theta - eta * D, F.draw())  # 7
            D = D + unit(m_k)  # 8
            m_new = m_new + m_k / K
        return m_new

    def stepped(self, s: Controlled, dm: Vec, S: int) -> Controlled:
        """The server after the mean increment of S clients."""
        return Controlled(
            theta=s.theta - self.gamma * unit(dm + s.c),  # 14, 15
            c=s.c + S / self.sys.N * dm,  # 13
        )


@dataclass(frozen=True)
class ParFreFL(LocalMomentum):
    about: ClassVar[About] = About(
        title="ParFreFL",
        family="normalised, local momentum",
        paper="Yan et al., in review, 2026",
        steps={
            "eta": Step("1 / (K (S K T)^(1/4))", lambda S, K, T: 1 / (K * (S * K * T) ** 0.25)),
            "gamma": Step("(S K)^(1/4) / T^(3/4)", lambda S, K, T: (S * K) ** 0.25 / T**0.75),
            "beta": Step("min(1, sqrt(S K / T))", lambda S, K, T: min(1.0, (S * K / T) ** 0.5)),
        },
        means={"c": "m_i"},
        sums={},
    )

    def client(self, theta0: Vec) -> Client:
        return Client(m_i=0 * theta0)

    def opening(self) -> tuple[Exchange, ...]:
        return (gradient_opening(self.sys, Client, lambda s, c: s._replace(c=c)),)  # 1

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Model, Up, lambda s: Model(s.theta), self.local, self.aggregate),)  # 16

    def local(self, client: Client, down: Model, F: Oracle) -> tuple[Client, Up]:
        m_new = self.momentum(client.m_i, down.theta, F)
        return Client(m_new), Up(m_new - client.m_i)  # 10

    def aggregate(self, s: Controlled, replies: Replies) -> Controlled:
        return self.stepped(s, mean(r.up.dm for r in replies), len(replies))
