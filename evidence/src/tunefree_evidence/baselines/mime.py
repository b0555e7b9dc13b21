"""Mime and MimeLite with momentum: clients imitate the server's method, whose state is fixed.

Karimireddy, Jaggi, Kale, Mohri, Reddi, Stich, Suresh, "Mime: mimicking centralized stochastic
algorithms in federated learning", 2020 (lines numbered by us; our β is the paper's 1 - β).

     1  require θ^0; m = 0
     2  sample S clients; each sends ∇f_i(θ)                         one pass over all local data
     3  g = mean_i ∇f_i(θ)
     4  the same clients start at θ_i = θ
     5      g_i = ∇F(θ_i; ξ) - ∇F(θ; ξ) + g                          Mime
            g_i = ∇F(θ_i; ξ)                                         MimeLite, needs no line 2 first
     6      θ_i = θ_i - η (β g_i + (1 - β) m)                        K times
     7      upload Δ_i = θ - θ_i                                     MimeLite: and ∇f_i(θ)
     8  m = β g + (1 - β) m;  θ = θ - mean_i Δ_i
     9  download θ; then θ and β g + (1 - β) m                       MimeLite: θ and m

Wire: Mime 3d down, 2d up in two exchanges; MimeLite 2d, 2d in one. Memory: none. Tuning: η and β.
Deviations: β g + (1 - β) m travels as one vector, and θ a second time. `statistics = "batches"`
takes K mini-batches in line 2 instead of all data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from tunefree.core import About, Exchange, Method, NoState, Oracle, Replies, Vec, mean
from tunefree.methods.local_sgd import Model, Up

FAMILY, PAPER = "server statistics on clients", "Karimireddy et al., 2020"
GRID: Mapping[str, tuple[float, ...]] = {
    "eta": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1),
    "beta": (0.1, 0.01, 0.001),
}


class Server(NamedTuple):
    theta: Vec
    m: Vec
    g: Vec


class Statistic(NamedTuple):
    grad: Vec


class Steered(NamedTuple):
    theta: Vec
    u: Vec


class UpLite(NamedTuple):
    delta: Vec
    grad: Vec


class Lite(NamedTuple):
    """What MimeLite's server has, and sends."""

    theta: Vec
    m: Vec


@dataclass(frozen=True)
class Imitating(Method):
    """What Mime and MimeLite share."""

    eta: float = 0.1
    beta: float = 0.1
    statistics: Literal["full", "batches"] = "full"

    def statistic(self, theta: Vec, F: Oracle) -> Vec:
        """∇f_i(θ), or the mean of K mini-batch gradients."""
        if self.statistics == "full":
            return F.full_grad(theta)  # 2
        return mean(F.grad(theta, F.draw()) for _ in range(self.sys.K))


@dataclass(frozen=True)
class Mime(Imitating):
    about: ClassVar[About] = About(
        "Mime", f"{FAMILY}, variance reduction", PAPER, grid=GRID, weights="mean"
    )

    def server(self, theta0: Vec) -> Server:
        return Server(theta0, m=0 * theta0, g=0 * theta0)  # 1

    def round(self) -> tuple[Exchange, ...]:
        return (
            Exchange(Model, Statistic, lambda s: Model(s.theta), self.measure, self.collect),
            Exchange(Steered, Up, self.broadcast, self.local, self.aggregate),
        )

    def measure(self, client: NoState, down: Model, F: Oracle) -> tuple[NoState, Statistic]:
        return client, Statistic(self.statistic(down.theta, F))

    def collect(self, s: Server, replies: Replies) -> Server:
        return s._replace(g=mean(r.up.grad for r in replies))  # 3

    def broadcast(self, s: Server) -> Steered:
        return Steered(s.theta, self.beta * s.g + (1 - self.beta) * s.m)  # 9

    def local(self, client: NoState, down: Steered, F: Oracle) -> tuple[NoState, Up]:
        (theta, u), eta, beta = down, self.eta, self.beta
        D = 0 * theta  # θ_i = θ - η D
        for _ in range(self.sys.K):
            xi = F.draw()
            D = D + beta * (F.grad(theta - eta * D, xi) - F.grad(theta, xi)) + u  # 5, 6
        return client, Up(delta=eta * D)  # 7

    def aggregate(self, s: Server, replies: Replies) -> Server:
        m = self.beta * s.g + (1 - self.beta) * s.m
        return Server(s.theta - mean(r.up.delta for r in replies), m, s.g)  # 8


@dataclass(frozen=True)
class MimeLite(Imitating):
    about: ClassVar[About] = About("MimeLite", FAMILY, PAPER, grid=GRID, weights="mean")

    def server(self, theta0: Vec) -> Lite:
        return Lite(theta0, m=0 * theta0)  # 1

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Lite, UpLite, lambda s: s, self.local, self.aggregate),)  # 9

    def local(self, client: NoState, down: Lite, F: Oracle) -> tuple[NoState, UpLite]:
        (theta, m), K, eta, beta = down, self.sys.K, self.eta, self.beta
        D = 0 * theta  # θ_i = θ - η D
        for _ in range(K):
            D = D + beta * F.grad(theta - eta * D, F.draw()) + (1 - beta) * m  # 5, 6
        return client, UpLite(eta * D, self.statistic(theta, F))  # 7

    def aggregate(self, s: Lite, replies: Replies) -> Lite:
        m = self.beta * mean(r.up.grad for r in replies) + (1 - self.beta) * s.m
        return Lite(s.theta - mean(r.up.delta for r in replies), m)  # 8
