"""Local Muon and MuLoCo: Muon on the clients, averaging or Nesterov's momentum on the server.

Zhang, Gao, "On provable benefits of Muon in federated learning", 2025. Thérien, Huang, Defazio,
Rish, Belilovsky, "MuLoCo: Muon is a practical inner optimizer for DiLoCo", 2025 (lines numbered by
us; MuLoCo's inner and outer rate and outer momentum are η, s and μ_s).

     1  require θ^0; M = u = 0; M_i = v_i = k_i = 0
     2  sample S clients; each starts at θ_i = θ, with
            M_i = v_i = k = 0                                        momentum "reset"
            its own M_i, v_i and k of its last round                 momentum "kept", MuLoCo
            M_i = M, v_i = k = 0                                     momentum "aggregated"
     3      K steps of `muon.py`, with Nesterov's momentum
     4      upload Δ_i = θ - θ_i; if "aggregated" also M_i - M, of matrices
     5  θ = θ - s mean_i Δ_i;  M = M + mean_i (M_i - M)              Local Muon
        u = μ_s u + mean_i Δ_i;  θ = θ - s (mean_i Δ_i + μ_s u)      MuLoCo
     6  download θ; if "aggregated" also M

Wire: d down, d up; "aggregated" 2d down, 2d up. Memory: M_i, v_i and k if kept, left as they are
while a client is away. Tuning: η and the momentum; of MuLoCo η, s and μ_s (and ρ).
Deviations: published for all clients, here means are over the S of the round. Unless "kept",
vectors start anew. MuLoCo has the same local step as Local Muon, not its paper's constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from tunefree.core import About, Exchange, NoState, Oracle, Replies, Vec, mean
from tunefree.methods.local_sgd import Model, Up
from tunefree_evidence.baselines.muon import ETAS, Averaged, Moments, MuonClients, anew


class Shared(NamedTuple):
    """What the server has, and sends, if momentum is aggregated."""

    theta: Vec
    M: Vec


class WithVelocity(NamedTuple):
    theta: Vec
    u: Vec


@dataclass(frozen=True)
class LocalMuon(MuonClients):
    s: float = 1.0
    momentum: Literal["reset", "kept", "aggregated"] = "reset"

    about: ClassVar[About] = About(
        title="Local Muon",
        family="Muon clients, averaging",
        paper="Zhang, Gao, 2025",
        grid={"eta": ETAS, "momentum": ("reset", "kept", "aggregated")},
        weights="mean",
    )

    def server(self, theta0: Vec) -> Model | Shared:
        return Shared(theta0, 0 * theta0) if self.momentum == "aggregated" else Model(theta0)  # 1

    def client(self, theta0: Vec) -> Moments | NoState:
        return anew(theta0) if self.momentum == "kept" else NoState()  # 1

    def round(self) -> tuple[Exchange, ...]:
        Down, Reply = (Shared, Averaged) if self.momentum == "aggregated" else (Model, Up)
        return (Exchange(Down, Reply, lambda s: s, self.local, self.aggregate),)  # 6

    def local(self, client: Any, down: Any, F: Oracle) -> tuple[Any, Up | Averaged]:
        start = client if self.momentum == "kept" else anew(down.theta)  # 2
        if self.momentum == "aggregated":
            start = start._replace(M=down.M)  # 2
        D, end = self.walk(down.theta, start, F)  # 3
        if self.momentum == "aggregated":
            return client, Averaged(self.eta * D, self.increment(down.M, end))  # 4
        return end if self.momentum == "kept" else client, Up(self.eta * D)  # 4

    def aggregate(self, s: Any, replies: Replies) -> Model | Shared:
        theta = s.theta - self.s * mean(r.up.delta for r in replies)  # 5
        if self.momentum == "aggregated":
            return Shared(theta, s.M + mean(r.up.dm for r in replies))  # 5
        return Model(theta)


@dataclass(frozen=True)
class MuLoCo(MuonClients):
    s: float = 0.7
    mu_s: float = 0.6

    about: ClassVar[About] = About(
        title="MuLoCo",
        family="Muon clients, server momentum",
        paper="Thérien, Huang, Defazio, Rish, Belilovsky, 2025",
        grid={"eta": ETAS, "s": (0.7, 1.0), "mu_s": (0.6, 0.9)},
        weights="mean",
    )

    def server(self, theta0: Vec) -> WithVelocity:
        return WithVelocity(theta0, u=0 * theta0)  # 1

    def client(self, theta0: Vec) -> Moments:
        return anew(theta0)  # 1

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Model, Up, lambda s: Model(s.theta), self.local, self.aggregate),)  # 6

    def local(self, client: Moments, down: Model, F: Oracle) -> tuple[Moments, Up]:
        D, end = self.walk(down.theta, client, F)  # 2, 3
        return end, Up(self.eta * D)  # 4

    def aggregate(self, s: WithVelocity, replies: Replies) -> WithVelocity:
        delta = mean(r.up.delta for r in replies)
        u = self.mu_s * s.u + delta  # 5
        return WithVelocity(s.theta - self.s * (delta + self.mu_s * u), u)  # 5
