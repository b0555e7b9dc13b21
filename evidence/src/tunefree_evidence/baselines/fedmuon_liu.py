"""FedMuon (Liu): Muon clients that start from the mean momentum and follow the last direction.

Liu, Shang, Zhou, Liu, Liu, Liu, "FedMuon: accelerating federated learning with matrix
orthogonalization", 2025 (lines numbered by us; g is the paper's Δ of the last round).

     1  require θ^0; M = g = 0
     2  sample S clients; each starts at θ_i = θ with M_i = M, v_i = k = 0
     3      K steps of `muon.py` without Nesterov's momentum, where line 4 is
            θ_i = θ_i - η ((1 - α) (p + λ θ_i) + α g)
     4      upload Δ_i = (θ - θ_i) / (η K) and M_i - M, of matrices
     5  g = mean_i Δ_i;  M = M + mean_i (M_i - M)
     6  θ = θ - η K g
     7  download θ, M and g

Wire: 3d down, 2d up. Memory: none. Tuning: η and α (and ρ).
Deviations: the upload is divided by η K on the client; λ = 0, and 0.01 as published; the page has
no Nesterov momentum, the authors' code takes Muon from a package in which it is the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tunefree.core import About, Exchange, NoState, Oracle, Replies, Vec, mean
from tunefree_evidence.baselines.muon import ETAS, Averaged, MuonClients, anew


class Directed(NamedTuple):
    """What the server has, and sends."""

    theta: Vec
    M: Vec
    g: Vec


@dataclass(frozen=True)
class FedMuonLiu(MuonClients):
    mu: float = 0.98
    alpha: float = 0.5

    nesterov: ClassVar[bool] = False
    about: ClassVar[About] = About(
        title="FedMuon (Liu)",
        family="Muon clients, aggregated momentum",
        paper="Liu, Shang, Zhou, Liu, Liu, Liu, 2025",
        grid={"eta": ETAS, "alpha": (0.25, 0.5, 0.75)},
        weights="mean",
    )

    def server(self, theta0: Vec) -> Directed:
        return Directed(theta0, M=0 * theta0, g=0 * theta0)  # 1

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Directed, Averaged, lambda s: s, self.local, self.aggregate),)  # 7

    def local(self, client: NoState, down: Directed, F: Oracle) -> tuple[NoState, Averaged]:
        (theta, M, g), alpha = down, self.alpha
        start = anew(theta)._replace(M=M)  # 2
        D, end = self.walk(theta, start, F, lambda p: (1 - alpha) * p + alpha * g)  # 3
        return client, Averaged(D / self.sys.K, self.increment(M, end))  # 4

    def aggregate(self, s: Directed, replies: Replies) -> Directed:
        g, dm = mean(r.up.delta for r in replies), mean(r.up.dm for r in replies)  # 5
        return Directed(s.theta - self.eta * self.sys.K * g, s.M + dm, g)  # 6
