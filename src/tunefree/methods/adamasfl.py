"""AdaMasFL: normalised steps, momentum and control variates, late clients, nothing to tune.

Yan, Zhong, Wang, Zhang, "Momentum-driven adaptivity: towards tuning-free asynchronous federated
learning", ICML 2025, Algorithms 3 (server) and 4 (client; lines marked c).

     1  require θ^0; c_i = (1/K) Σ_k ∇F(θ^0; ξ_i^k) for all i; c = mean of all c_i; g = c
    c1  receive θ and β c + (1 - β) g as they were τ_i steps ago; θ_i = θ
    c3      g_i = β (∇F(θ_i; ξ) - c_i + c) + (1 - β) g
    c4      θ_i = θ_i - η g_i / ||g_i||                              K times
    c6  upload Δ_i = (θ - θ_i) / (η K) and c_i' = mean of the K gradients of line c3
     3  when S uploads have come:
     6      θ = θ - γ (1/S) Σ Δ_i                                    5: the mean
     7      g = β ((1/S) Σ (c_i' - c_i) + c) + (1 - β) g             with the old c
     8      c = c + (1/N) Σ (c_i' - c_i)                             4: the server's c_i = c_i'
     9  send θ and β c + (1 - β) g

Wire: 2d down, 2d up. Memory: c_i. Tuning: none; the steps are Theorem 2's, and no reply is weighted
by its age. Deviations: line c6 uploads the increment c_i' - c_i, so the server stores no table of N
vectors; a client's next job starts after its upload was used, so that its c_i is the server's. Δ_i
is summed from unit vectors, never found by subtracting models; β is clipped at 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tunefree.core import About, Exchange, Oracle, Reply, System, Vec, gradient_opening, mean, unit


class Server(NamedTuple):
    theta: Vec
    c: Vec
    g: Vec


class Client(NamedTuple):
    c_i: Vec


class Down(NamedTuple):
    theta: Vec
    u: Vec


class Up(NamedTuple):
    delta: Vec
    dc: Vec


@dataclass(frozen=True)
class AdaMasFL:
    sys: System
    eta: float
    gamma: float
    beta: float

    about: ClassVar[About] = About(
        title="AdaMasFL",
        family="asynchronous: normalised, momentum, control variate",
        paper="Yan, Zhong, Wang, Zhang, ICML 2025",
        steps={
            "eta": "1 / (K sqrt(T))",
            "gamma": "(S K)^(1/4) / T^(3/4)",
            "beta": "min(1, sqrt(S K / T))",
        },
        bounds={"delta": 1},
        means={"c": "c_i"},
    )

    @classmethod
    def theory(cls, sys: System) -> AdaMasFL:
        _, S, K, T = sys
        return cls(
            sys,
            eta=1 / (K * T**0.5),
            gamma=(S * K) ** 0.25 / T**0.75,
            beta=min(1.0, (S * K / T) ** 0.5),
        )

    def server(self, theta0: Vec) -> Server:
        return Server(theta0, c=0 * theta0, g=0 * theta0)

    def client(self, theta0: Vec) -> Client:
        return Client(c_i=0 * theta0)

    def opening(self) -> tuple[Exchange, ...]:
        return (gradient_opening(self.sys, Client, lambda s, c: s._replace(c=c, g=c)),)  # 1

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Down, Up, self.broadcast, self.local, self.aggregate),)

    def broadcast(self, s: Server) -> Down:
        return Down(s.theta, self.beta * s.c + (1 - self.beta) * s.g)  # 9

    def local(self, client: Client, down: Down, F: Oracle) -> tuple[Client, Up]:
        (c_i,), K, eta, beta = client, self.sys.K, self.eta, self.beta
        D, c_new = 0 * c_i, 0 * c_i  # θ_i = θ - η D
        u_i = down.u - beta * c_i  # c3 without its gradient
        for _ in range(K):
            grad = F.grad(down.theta.sub(D, alpha=eta), F.draw())
            D += unit(u_i.add(grad, alpha=beta))  # c3, c4
            c_new.add_(grad, alpha=1 / K)
        return Client(c_new), Up(delta=D / K, dc=c_new - c_i)  # c6

    def aggregate(self, s: Server, replies: Sequence[Reply]) -> Server:
        N, S, beta = self.sys.N, len(replies), self.beta
        delta, dc = mean(r.up.delta for r in replies), mean(r.up.dc for r in replies)  # 5
        return Server(
            theta=s.theta - self.gamma * delta,  # 6
            g=beta * (dc + s.c) + (1 - beta) * s.g,  # 7
            c=s.c + S / N * dc,  # 8
        )
