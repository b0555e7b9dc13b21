"""FedMuon (server): local SGD on the clients, Muon with Nesterov's momentum on the server.

Known from code only; no paper found (lines numbered by us). Matrices, vectors and Muon( ) are those
of `muon.py`.

     1  require θ^0; M = v = 0
     2  sample S clients; each starts at θ_i = θ
     3      θ_i = θ_i - η ∇F(θ_i; ξ)                                 K times
     4      upload Δ_i = θ - θ_i
     5  D = mean_i Δ_i;  M = μ M + (1 - μ) D;  v = 0.99 v + 0.01 D^2
     6  matrices: θ = θ - η_s Muon(μ M + (1 - μ) D)
        vectors:  θ = θ - ρ η_s M / (sqrt(v) + 1e-6)
     7  download θ

Wire: d down, d up. Memory: none. Tuning: η and η_s (and μ, ρ).
Deviations: as with FedAdam there is no bias correction. All matrices take Muon's step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tunefree.core import About, Replies, Vec, mean
from tunefree.methods.local_sgd import LocalSGD
from tunefree_evidence.baselines.muon import joined, muon


class Server(NamedTuple):
    theta: Vec
    M: Vec
    v: Vec


@dataclass(frozen=True)
class FedMuonServer(LocalSGD):  # 2, 3, 4, 7
    eta: float = 0.03
    eta_s: float = 0.03
    mu: float = 0.9
    rho: float = 0.3

    about: ClassVar[About] = About(
        title="FedMuon (server)",
        family="Muon server",
        paper="code only; no paper found",
        grid={"eta": (1e-2, 3e-2, 1e-1, 3e-1), "eta_s": (3e-3, 1e-2, 3e-2, 1e-1)},
        weights="mean",
    )

    def server(self, theta0: Vec) -> Server:
        return Server(theta0, M=0 * theta0, v=0 * theta0)  # 1

    def aggregate(self, s: Server, replies: Replies) -> Server:
        mu, D = self.mu, mean(r.up.delta for r in replies)
        M = mu * s.M + (1 - mu) * D  # 5
        v = 0.99 * s.v + 0.01 * D * D  # 5
        matrices = muon(mu * M + (1 - mu) * D, self.shapes)  # 6
        step = joined(matrices, self.rho * M / (v.sqrt() + 1e-6), self.shapes)  # 6
        return Server(s.theta - self.eta_s * step, M, v)  # 6
