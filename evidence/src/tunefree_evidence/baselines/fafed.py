"""FAFED: adaptive local steps along a STORM momentum; models and moments are averaged.

Wu, Huang, Hu, Huang, "Faster adaptive federated learning", AAAI 2023 (lines numbered by us; our β,
β2 and ε are the paper's α, β and ρ).

     1  require θ^0; g_i = ∇F(θ^0; ξ_i) for all i; m = mean g_i; v = mean g_i^2
     2  θ = θ^0 - η m;  θ_i^prev = θ^0
     3  all clients start at θ_i = θ, m_i = m, v_i = v;  A = sqrt(v) + ε
     4      g = ∇F(θ_i; ξ);  g' = ∇F(θ_i^prev; ξ)                    the same ξ
     5      m_i = g + (1 - β) (m_i - g');  v_i = β2 v_i + (1 - β2) g^2
     6      θ_i^prev = θ_i;  θ_i = θ_i - η m_i / A                   K times
     7      upload θ - θ_i, m_i and v_i
     8  θ = θ - mean_i (θ - θ_i);  m = mean_i m_i;  v = mean_i v_i
     9  download θ, m and v

Wire: 3d down, 3d up; opening d, 2d. Memory: θ_i^prev. Tuning: η, β, β2 and ε.
Deviations: published for S = N. With S < N a client may have been away, so θ_i^prev = θ on
download, and nothing is remembered. Clients step first, then all is averaged, as in the authors'
code. The steps are constant; the theory's shrink as t^(-1/3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tunefree.core import About, Exchange, Method, OpeningDown, Oracle, Replies, Vec, mean


class Moments(NamedTuple):
    """What the server has, and sends."""

    theta: Vec
    m: Vec
    v: Vec


class Client(NamedTuple):
    theta_prev: Vec


class FirstUp(NamedTuple):
    grad: Vec
    square: Vec


class Up(NamedTuple):
    delta: Vec
    m_i: Vec
    v_i: Vec


@dataclass(frozen=True)
class FAFED(Method):
    eta: float = 0.003
    beta: float = 0.1
    beta2: float = 0.1
    epsilon: float = 0.1

    about: ClassVar[About] = About(
        title="FAFED",
        family="adaptive clients, variance reduction",
        paper="Wu, Huang, Hu, Huang, AAAI 2023",
        grid={
            "eta": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1),
            "epsilon": (0.01, 0.1),
            "beta2": (0.1, 0.9, 0.99),
        },
        weights="mean",
    )

    def server(self, theta0: Vec) -> Moments:
        return Moments(theta0, m=0 * theta0, v=0 * theta0)

    def client(self, theta0: Vec) -> Client:
        return Client(theta_prev=theta0)  # 2

    def opening(self) -> tuple[Exchange, ...]:
        return (
            Exchange(
                OpeningDown, FirstUp, lambda s: OpeningDown(s.theta), self.first, self.started
            ),
        )

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Moments, Up, lambda s: s, self.local, self.aggregate),)  # 9

    def first(self, client: Client, down: OpeningDown, F: Oracle) -> tuple[Client, FirstUp]:
        grad = F.grad(down.theta, F.draw())
        return client, FirstUp(grad, grad * grad)  # 1

    def started(self, s: Moments, replies: Replies) -> Moments:
        m, v = mean(r.up.grad for r in replies), mean(r.up.square for r in replies)  # 1
        return Moments(s.theta - self.eta * m, m, v)  # 2

    def local(self, client: Client, down: Moments, F: Oracle) -> tuple[Client, Up]:
        (theta, m_i, v_i), eta, beta, beta2 = down, self.eta, self.beta, self.beta2
        everyone = self.sys.S == self.sys.N
        theta_i, theta_prev = theta, client.theta_prev if everyone else theta  # 3
        A = v_i.sqrt() + self.epsilon  # 3
        D = 0 * theta  # θ_i = θ - η D
        for _ in range(self.sys.K):
            xi = F.draw()
            grad, grad_prev = F.grad(theta_i, xi), F.grad(theta_prev, xi)  # 4
            m_i = grad + (1 - beta) * (m_i - grad_prev)  # 5
            v_i = beta2 * v_i + (1 - beta2) * grad * grad  # 5
            D = D + m_i / A
            theta_i, theta_prev = theta - eta * D, theta_i  # 6
        return Client(theta_prev) if everyone else client, Up(eta * D, m_i, v_i)  # 7

    def aggregate(self, s: Moments, replies: Replies) -> Moments:
        return Moments(
            theta=s.theta - mean(r.up.delta for r in replies),  # 8
            m=mean(r.up.m_i for r in replies),
            v=mean(r.up.v_i for r in replies),
        )
