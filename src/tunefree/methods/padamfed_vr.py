"""PAdaMFed-VR: PAdaMFed with STORM variance reduction in the local direction.

Yan, Zhang, Wang, Cao, "Problem-parameter-free federated learning", ICLR 2025, Algorithm 2.

     1  require θ^0 = θ_prev; c_i = (1/K) Σ_k ∇F(θ^0; ξ_i^k) for all i; c = mean of all c_i; g = c
     7      g_i = ∇F(θ_i; ξ) + β (c - c_i) + (1 - β) (g - ∇F(θ_prev; ξ))    the same ξ twice
     8      θ_i = θ_i - η g_i / ||g_i||                                     K times
     9      c_i' = mean of the K gradients ∇F(θ_i; ξ)
    11      upload θ_i and c_i'
    13  ḡ = (1 / (η S K)) Σ (θ - θ_i)
    14  θ_prev, θ = θ, θ - γ ḡ
    15  c = c + (1/N) Σ (c_i' - c_i)
    16  g = β ((1/S) Σ (c_i' - c_i) + c) + (1 - β) g                 `ema`, as listed
    16' g = (1 / (S K)) Σ_i Σ_k g_i                                  `storm`, as proved
    17  download θ, θ_prev and β c + (1 - β) g

Wire: 3d down; up 3d with `storm`, 2d with `ema`. Memory: c_i. Tuning: none; Theorem 2's steps.
Deviations: listing and proof disagree on line 16; Lemmas 6 and 7 use 16', so `storm` is the
default and `ema` an option. A sampled client need not have the last broadcast, so θ_prev is
sent. Line 11 uploads displacements and increments, as PAdaMFed does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from tunefree.core import OPEN, About, Exchange, Oracle, Replies, Step, Vec, mean, unit
from tunefree.methods.control import Client, Momentum, Up


class Server(NamedTuple):
    theta: Vec
    theta_prev: Vec
    c: Vec
    g: Vec


class Down(NamedTuple):
    theta: Vec
    theta_prev: Vec
    u: Vec


class UpStorm(NamedTuple):
    delta: Vec
    dc: Vec
    q: Vec


@dataclass(frozen=True)
class PAdaMFedVR(Momentum):  # 1
    eta: float = OPEN
    gamma: float = OPEN
    beta: float = OPEN
    momentum: Literal["storm", "ema"] = "storm"

    about: ClassVar[About] = About(
        title="PAdaMFed-VR",
        family="normalised, STORM, control variate",
        paper="Yan, Zhang, Wang, Cao, ICLR 2025",
        steps={
            "eta": Step("1 / (K T)", lambda K, T: 1 / (K * T)),
            "gamma": Step(
                "(S K)^(1/3) / T^(2/3)", lambda S, K, T: (S * K) ** (1 / 3) / T ** (2 / 3)
            ),
            "beta": Step(
                "min(1, (S K)^(1/3) / T^(2/3))",
                lambda S, K, T: min(1.0, (S * K) ** (1 / 3) / T ** (2 / 3)),
            ),
        },
        bounds={"delta": 1},
        means={"c": "c_i"},
        sums={},
    )

    def server(self, theta0: Vec) -> Server:
        return Server(theta0, theta0, c=0 * theta0, g=0 * theta0)

    def round(self) -> tuple[Exchange, ...]:
        kind = UpStorm if self.momentum == "storm" else Up
        return (Exchange(Down, kind, self.broadcast, self.local, self.aggregate),)

    def broadcast(self, s: Server) -> Down:
        return Down(s.theta, s.theta_prev, self.beta * s.c + (1 - self.beta) * s.g)  # 17

    def local(self, client: Client, down: Down, F: Oracle) -> tuple[Client, Up | UpStorm]:
        (c_i,), K, eta, beta = client, self.sys.K, self.eta, self.beta
        D, c_new, q = 0 * c_i, 0 * c_i, 0 * c_i  # θ_i = θ - η D
        for _ in range(K):
            xi = F.draw()
            grad, grad_prev = F.grad(down.theta - eta * D, xi), F.grad(down.theta_prev, xi)
            g_i = grad - beta * c_i + down.u - (1 - beta) * grad_prev  # 7
            D = D + unit(g_i)  # 8
            c_new = c_new + grad / K  # 9
            q = q + g_i / K
        delta, dc = D / K, c_new - c_i
        return Client(c_new), (  # 11
            UpStorm(delta, dc, q) if self.momentum == "storm" else Up(delta, dc)
        )

    def aggregate(self, s: Server, replies: Replies) -> Server:
        N, S, beta = self.sys.N, len(replies), self.beta
        delta, dc = mean(r.up.delta for r in replies), mean(r.up.dc for r in replies)  # 13
        if self.momentum == "storm":
            g = mean(r.up.q for r in replies)  # 16'
        else:
            g = beta * (dc + s.c) + (1 - beta) * s.g  # 16
        return Server(
            theta=s.theta - self.gamma * delta,  # 14
            theta_prev=s.theta,
            c=s.c + S / N * dc,  # 15
            g=g,
        )
