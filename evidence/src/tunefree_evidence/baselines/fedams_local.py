"""FedAMS (local): AMSGrad on the clients, under one denominator that all share.

Chen, Li, Li, "Toward communication efficient adaptive gradient method", FODS 2020 (lines numbered
by us).

     1  require θ^0; m_i = v_i = 0; v_max = ε
     2  sample S clients; each starts at θ_i = θ
     3      m_i = β1 m_i + (1 - β1) ∇F(θ_i; ξ);  v_i = β2 v_i + (1 - β2) ∇F(θ_i; ξ)^2
     4      θ_i = θ_i - η m_i / sqrt(v_max)                          K times
     5      upload θ - θ_i and v_i
     6  θ = θ - mean_i (θ - θ_i);  v_max = max(v_max, mean_i v_i)
     7  download θ and v_max

Wire: 2d down, 2d up. Memory: m_i and v_i, left as they are while the client is away. Tuning: η.
Deviations: published for all clients; here lines 5 and 6 are over the S of the round. β1 and β2
weight the old term, unlike our β. Neither paper nor code was available: a reconstruction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tunefree.core import About, Exchange, Method, Oracle, Replies, Vec, mean


class Shared(NamedTuple):
    """What the server has, and sends."""

    theta: Vec
    v_max: Vec


class Client(NamedTuple):
    m_i: Vec
    v_i: Vec


class Up(NamedTuple):
    delta: Vec
    v_i: Vec


@dataclass(frozen=True)
class FedAMSLocal(Method):
    eta: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.99
    epsilon: float = 1e-6

    about: ClassVar[About] = About(
        title="FedAMS (local)",
        family="adaptive clients",
        paper="Chen, Li, Li, FODS 2020",
        grid={"eta": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)},
        weights="mean",
    )

    def server(self, theta0: Vec) -> Shared:
        return Shared(theta0, v_max=0 * theta0 + self.epsilon)  # 1

    def client(self, theta0: Vec) -> Client:
        return Client(m_i=0 * theta0, v_i=0 * theta0)  # 1

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Shared, Up, lambda s: s, self.local, self.aggregate),)  # 7

    def local(self, client: Client, down: Shared, F: Oracle) -> tuple[Client, Up]:
        (m_i, v_i), eta, beta1, beta2 = client, self.eta, self.beta1, self.beta2
        below = down.v_max.sqrt()
        D = 0 * down.theta  # θ_i = θ - η D
        for _ in range(self.sys.K):
            grad = F.grad(down.theta - eta * D, F.draw())
            m_i = beta1 * m_i + (1 - beta1) * grad  # 3
            v_i = beta2 * v_i + (1 - beta2) * grad * grad  # 3
            D = D + m_i / below  # 4
        return Client(m_i, v_i), Up(eta * D, v_i)  # 5

    def aggregate(self, s: Shared, replies: Replies) -> Shared:
        return Shared(
            theta=s.theta - mean(r.up.delta for r in replies),  # 6
            v_max=s.v_max.maximum(mean(r.up.v_i for r in replies)),
        )
