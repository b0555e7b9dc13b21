"""FedAdagrad, FedAdam, FedYogi: an adaptive method on the server, local SGD on the clients.

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan, "Adaptive federated optimization",
ICLR 2021, Algorithm 2 (lines numbered by us; η, η_s and ε are the paper's η_l, η and τ).

     1  require θ^0; m = 0; v = ε^2
     2  sample S clients; each starts at θ_i = θ
     3      θ_i = θ_i - η ∇F(θ_i; ξ)                                 K times
     4      upload Δ_i = θ - θ_i
     5  D = mean_i Δ_i;  m = β1 m + (1 - β1) D
     6  v = v + D^2                                                  FedAdagrad
        v = β2 v + (1 - β2) D^2                                      FedAdam
        v = v - (1 - β2) D^2 sign(v - D^2)                           FedYogi
     7  θ = θ - η_s m / (sqrt(v) + ε)
     8  download θ

Wire: d down, d up. Memory: none. Tuning: η, η_s (and ε).
Deviations: D points downhill, so it is subtracted. As in the paper there is no bias correction and
v starts at ε^2; β1 and β2 weight the old term, unlike our β. FedAdagrad has β1 = 0.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tunefree.core import About, Replies, Vec, mean
from tunefree.methods.local_sgd import LocalSGD

FAMILY, PAPER = "adaptive server", "Reddi et al., ICLR 2021"
GRID: Mapping[str, tuple[float, ...]] = {
    "eta": (1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0),
    "eta_s": (1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0),
    "epsilon": (1e-4, 1e-3, 1e-2),
}


class Server(NamedTuple):
    theta: Vec
    m: Vec
    v: Vec


@dataclass(frozen=True)
class FedOpt(LocalSGD):  # 2, 3, 4, 8
    eta_s: float = 0.01
    epsilon: float = 1e-3

    def server(self, theta0: Vec) -> Server:
        return Server(theta0, m=0 * theta0, v=0 * theta0 + self.epsilon**2)  # 1

    def aggregate(self, s: Server, replies: Replies) -> Server:
        m, v = self.moments(s, mean(r.up.delta for r in replies))
        return Server(s.theta - self.eta_s * m / (v.sqrt() + self.epsilon), m, v)  # 7

    @abstractmethod
    def moments(self, s: Server, D: Vec) -> tuple[Vec, Vec]:
        """The new m and v, in which the three differ."""


@dataclass(frozen=True)
class FedAdagrad(FedOpt):
    eta_s: float = 0.1

    about: ClassVar[About] = About("FedAdagrad", FAMILY, PAPER, grid=GRID, weights="mean")

    def moments(self, s: Server, D: Vec) -> tuple[Vec, Vec]:
        return D, s.v + D * D  # 5, 6


@dataclass(frozen=True)
class FedAdam(FedOpt):
    beta1: float = 0.9
    beta2: float = 0.99

    about: ClassVar[About] = About("FedAdam", FAMILY, PAPER, grid=GRID, weights="mean")

    def moments(self, s: Server, D: Vec) -> tuple[Vec, Vec]:
        m = self.beta1 * s.m + (1 - self.beta1) * D  # 5
        return m, self.beta2 * s.v + (1 - self.beta2) * D * D  # 6


@dataclass(frozen=True)
class FedYogi(FedOpt):
    beta1: float = 0.9
    beta2: float = 0.99

    about: ClassVar[About] = About("FedYogi", FAMILY, PAPER, grid=GRID, weights="mean")

    def moments(self, s: Server, D: Vec) -> tuple[Vec, Vec]:
        m = self.beta1 * s.m + (1 - self.beta1) * D  # 5
        return m, s.v - (1 - self.beta2) * D * D * (s.v - D * D).sign()  # 6
