"""SCAFCOM: SCALLION with local momentum, for contractive (biased) compressors.

Huang, Li, Li, "Stochastic controlled averaging for federated learning with communication
compression", ICLR 2024 (lines numbered by us).

     1  require θ^0; c = 0, c_i = 0 and v_i = 0
     2  sample S clients; each starts at θ_i = θ
     3      θ_i = θ_i - η (∇F(θ_i; ξ) - c_i + c)                     K times
     4      v_i = (1 - β) v_i + β ((θ - θ_i) / (η K) + c_i - c)
     5      upload C(v_i - c_i)
     6      c_i = c_i + C(v_i - c_i)
     7  θ = θ - s η K ((1/S) Σ C(v_i - c_i) + c)                     with the old c
     8  c = c + (1/N) Σ C(v_i - c_i)
     9  download θ and c

Wire: 2d down, C(d) up. Memory: c_i and v_i. Tuning: η, s and β.
Deviations: none in the formulas; the paper's η_l and η_g are η and s. `start = "gradients"` opens
with batch gradients at θ^0 as ComParFreFL does, for comparisons from the same start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from tunefree.core import About, Exchange, Oracle, Vec, gradient_opening
from tunefree.methods.control import Controlled
from tunefree.methods.local_sgd import Sent
from tunefree.wire import TOP_5_PERCENT, Compressor, demand
from tunefree_evidence.baselines.scallion import Compressing


class Client(NamedTuple):
    c_i: Vec
    v_i: Vec


@dataclass(frozen=True)
class Scafcom(Compressing):  # 1, 7, 8, 9
    beta: float = 0.2
    start: Literal["zero", "gradients"] = "zero"
    C: Compressor = TOP_5_PERCENT

    about: ClassVar[About] = About(
        title="SCAFCOM",
        family="momentum, control variate, compressed",
        paper="Huang, Li, Li, ICLR 2024",
        grid={"eta": (1e-2, 3e-2, 1e-1), "s": (1.0, 3.0), "beta": (0.05, 0.1, 0.2, 0.5)},
        means={"c": "c_i"},
    )

    def __post_init__(self) -> None:
        demand(self.C, "contractive", self.about.title)

    def client(self, theta0: Vec) -> Client:
        return Client(c_i=0 * theta0, v_i=0 * theta0)  # 1

    def opening(self) -> tuple[Exchange, ...]:
        if self.start == "zero":
            return ()
        return (gradient_opening(self.sys, lambda v: Client(v, v), lambda s, c: s._replace(c=c)),)

    def local(self, client: Client, down: Controlled, F: Oracle) -> tuple[Client, Sent]:
        (c_i, v_i), K, eta, beta = client, self.sys.K, self.eta, self.beta
        D = 0 * c_i  # θ_i = θ - η D
        for _ in range(K):
            D = D + F.grad(down.theta - eta * D, F.draw()) - c_i + down.c  # 3
        v_new = (1 - beta) * v_i + beta * (D / K + c_i - down.c)  # 4
        delta = self.C(v_new - c_i, F.rng)  # 5
        return Client(c_i + delta.dense(), v_new), Sent(delta)  # 6
