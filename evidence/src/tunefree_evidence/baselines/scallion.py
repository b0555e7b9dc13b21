"""SCALLION: SCAFFOLD with one compressed upload, for unbiased compressors.

Huang, Li, Li, "Stochastic controlled averaging for federated learning with communication
compression", ICLR 2024 (lines numbered by us).

     1  require θ^0; c = 0 and c_i = 0
     2  sample S clients; each starts at θ_i = θ
     3      θ_i = θ_i - η (∇F(θ_i; ξ) - c_i + c)                     K times
     4      δ_i = α ((θ - θ_i) / (η K) - c)
     5      upload C(δ_i)
     6      c_i = c_i + C(δ_i)
     7  θ = θ - s η K ((1/S) Σ C(δ_i) + c)                           with the old c
     8  c = c + (1/N) Σ C(δ_i)
     9  download θ and c

Wire: 2d down, C(d) up. Memory: c_i. Tuning: η, s and α.
Deviations: none in the formulas; the paper's η_l and η_g are η and s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tunefree.core import About, Exchange, Oracle, Replies, mean
from tunefree.methods.control import Client, Controlled, ControlVariates
from tunefree.methods.local_sgd import Sent
from tunefree.wire import RAND_5_PERCENT, Compressor, demand


@dataclass(frozen=True)
class Compressing(ControlVariates):
    """What SCALLION and SCAFCOM share."""

    eta: float = 0.1
    s: float = 1.0

    def opening(self) -> tuple[Exchange, ...]:
        return ()

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Controlled, Sent, lambda s: s, self.local, self.aggregate),)  # 9

    def aggregate(self, s: Controlled, replies: Replies) -> Controlled:
        N, S, step = self.sys.N, len(replies), self.s * self.eta * self.sys.K
        delta = mean(r.up.delta.dense() for r in replies)
        return Controlled(
            theta=s.theta - step * (delta + s.c),  # 7
            c=s.c + S / N * delta,  # 8
        )


@dataclass(frozen=True)
class Scallion(Compressing):  # 1
    alpha: float = 0.1
    C: Compressor = RAND_5_PERCENT

    about: ClassVar[About] = About(
        title="SCALLION",
        family="control variate, compressed",
        paper="Huang, Li, Li, ICLR 2024",
        grid={"eta": (1e-2, 3e-2, 1e-1), "s": (0.5, 1.0, 3.0), "alpha": (0.05, 0.1, 0.2, 0.5)},
        means={"c": "c_i"},
    )

    def __post_init__(self) -> None:
        demand(self.C, "unbiased", self.about.title)

    def local(self, client: Client, down: Controlled, F: Oracle) -> tuple[Client, Sent]:
        (c_i,), K, eta = client, self.sys.K, self.eta
        D = 0 * c_i  # θ_i = θ - η D
        for _ in range(K):
            D = D + F.grad(down.theta - eta * D, F.draw()) - c_i + down.c  # 3
        delta = self.C(self.alpha * (D / K - down.c), F.rng)  # 4, 5
        return Client(c_i + delta.dense()), Sent(delta)  # 6
