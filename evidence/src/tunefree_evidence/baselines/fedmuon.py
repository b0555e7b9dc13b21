"""FedMuon: control variates correct the bias of the clients' normalised steps.

Takezawa, Koloskova, Jiang, Stich, "FedMuon: federated learning with bias-corrected LMO-based
optimization", ICLR 2026, Algorithm 1 (lines numbered by us; β is the paper's α). Matrices and O( )
are those of `muon.py`; a vector u has O(u) = u / ||u||.

     1  require θ^0; c_i = 0; c = 0
     2  sample S clients; each starts at θ_i = θ with M_i = c_i
     3      M_i = (1 - β) M_i + β ∇F(θ_i; ξ)                         K times
     4      θ_i = θ_i - η O(M_i - c_i + c)
     5  c_i' = M_i;  upload Δ_i = θ - θ_i and c_i' - c_i;  c_i = c_i'
     6  θ = θ - (1/N) Σ Δ_i                                          over "all"
        θ = θ - (1/S) Σ Δ_i                                          over "sampled"
     7  c = c + (1/N) Σ (c_i' - c_i)
     8  download θ and c

Wire: 2d down, 2d up. Memory: c_i, which is M_i between rounds. Tuning: η and β.
Deviations: none with over "all", in which absent clients count as unmoved; "sampled" is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from tunefree.core import About, Exchange, Method, Oracle, Replies, Vec, mean
from tunefree.geometry import polar_factors
from tunefree_evidence.baselines.muon import ETAS


class Controlled(NamedTuple):
    """What the server has, and sends."""

    theta: Vec
    c: Vec


class Client(NamedTuple):
    c_i: Vec


class Up(NamedTuple):
    delta: Vec
    dc: Vec


@dataclass(frozen=True)
class FedMuon(Method):
    eta: float = 0.01
    beta: float = 0.9
    over: Literal["all", "sampled"] = "all"

    about: ClassVar[About] = About(
        title="FedMuon",
        family="Muon clients, control variate",
        paper="Takezawa, Koloskova, Jiang, Stich, ICLR 2026",
        grid={"eta": ETAS, "beta": (0.1, 0.5, 0.9)},
        means={"c": "c_i"},
    )

    def server(self, theta0: Vec) -> Controlled:
        return Controlled(theta0, c=0 * theta0)  # 1

    def client(self, theta0: Vec) -> Client:
        return Client(c_i=0 * theta0)  # 1

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Controlled, Up, lambda s: s, self.local, self.aggregate),)  # 8

    def local(self, client: Client, down: Controlled, F: Oracle) -> tuple[Client, Up]:
        (c_i,), (theta, c), eta, beta = client, down, self.eta, self.beta
        D, M_i = 0 * theta, c_i  # θ_i = θ - η D
        for _ in range(self.sys.K):
            M_i = (1 - beta) * M_i + beta * F.grad(theta - eta * D, F.draw())  # 3
            D = D + polar_factors(M_i - c_i + c, self.shapes)  # 4
        return Client(M_i), Up(delta=eta * D, dc=M_i - c_i)  # 5

    def aggregate(self, s: Controlled, replies: Replies) -> Controlled:
        share = len(replies) / self.sys.N
        delta, dc = mean(r.up.delta for r in replies), mean(r.up.dc for r in replies)
        moved = (share if self.over == "all" else 1.0) * delta
        return Controlled(theta=s.theta - moved, c=s.c + share * dc)  # 6, 7
