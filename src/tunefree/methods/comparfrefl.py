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

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tunefree.core import About, Exchange, Oracle, Replies, Vec, gradient_opening, mean
from tunefree.methods.control import Controlled
from tunefree.methods.local_sgd import Model, Sent
from tunefree.methods.parfrefl import LocalMomentum, ParFreFL
from tunefree.wire import TOP_5_PERCENT, Compressor, demand


class Client(NamedTuple):
    c_i: Vec
    m_i: Vec


@dataclass(frozen=True)
class ComParFreFL(LocalMomentum):  # 7, 8, 10, 15, 16, 17
    C: Compressor = TOP_5_PERCENT

    about: ClassVar[About] = ParFreFL.about._replace(
        title="ComParFreFL", family="normalised, local momentum, compressed", means={"c": "c_i"}
    )

    def __post_init__(self) -> None:
        demand(self.C, "contractive", self.about.title)

    def client(self, theta0: Vec) -> Client:
        return Client(c_i=0 * theta0, m_i=0 * theta0)

    def opening(self) -> tuple[Exchange, ...]:
        first = gradient_opening(self.sys, lambda m: Client(m, m), lambda s, c: s._replace(c=c))
        return (first,)  # 1

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Model, Sent, lambda s: Model(s.theta), self.local, self.aggregate),)  # 18

    def local(self, client: Client, down: Model, F: Oracle) -> tuple[Client, Sent]:
        c_i, m_i = client
        m_new = self.momentum(m_i, down.theta, F)  # 7, 8, 10
        delta = self.C(m_new - c_i, F.rng)  # 11, 12
        return Client(c_i + delta.dense(), m_new), Sent(delta)  # 13

    def aggregate(self, s: Controlled, replies: Replies) -> Controlled:
        delta = mean(r.up.delta.dense() for r in replies)
        return self.stepped(s, delta, len(replies))  # 15, 16, 17
