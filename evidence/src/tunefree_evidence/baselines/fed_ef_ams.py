"""Fed-EF-AMS: Fed-EF-SGD with AMSGrad on the server.

Li, Li, "Analysis of error feedback in federated non-convex optimization with biased compression:
fast convergence and partial participation", ICML 2023 (lines numbered by us).

     1  require θ^0; e_i = 0; m = v = v_max = 0
     2  sample S clients; each starts at θ_i = θ
     3      θ_i = θ_i - η ∇F(θ_i; ξ)                                 K times
     4      u_i = θ - θ_i + e_i
     5      upload C(u_i)
     6      e_i = u_i - C(u_i)
     7  D = (1/S) Σ C(u_i)
     8  m = β1 m + (1 - β1) D;  v = β2 v + (1 - β2) D^2;  v_max = max(v_max, v)
     9  θ = θ - γ m / sqrt(v_max + ε)
    10  download θ

Wire: d down, C(d) up. Memory: e_i, which is left as it is while the client is away. Tuning: η, γ.
Deviations: none known in the formulas, but β1, β2 and ε are the usual ones, not read in the paper;
they weight the old term, unlike our β. D is a descent direction, so it is subtracted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tunefree.core import About, Replies, Vec, mean
from tunefree_evidence.baselines.fed_ef_sgd import ErrorFeedback


class Server(NamedTuple):
    theta: Vec
    m: Vec
    v: Vec
    v_max: Vec


@dataclass(frozen=True)
class FedEFAMS(ErrorFeedback):  # 1 to 6, 10
    gamma: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    about: ClassVar[About] = About(
        title="Fed-EF-AMS",
        family="adaptive server, error feedback, compressed",
        paper="Li, Li, ICML 2023",
        grid={
            "eta": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1),
            "gamma": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1),
        },
        weights="mean",
    )

    def server(self, theta0: Vec) -> Server:
        return Server(theta0, m=0 * theta0, v=0 * theta0, v_max=0 * theta0)  # 1

    def aggregate(self, s: Server, replies: Replies) -> Server:
        beta1, beta2 = self.beta1, self.beta2
        D = mean(r.up.delta.dense() for r in replies)  # 7
        m, v = beta1 * s.m + (1 - beta1) * D, beta2 * s.v + (1 - beta2) * D * D  # 8
        v_max = s.v_max.maximum(v)
        theta = s.theta - self.gamma * m / (v_max + self.epsilon).sqrt()  # 9
        return Server(theta, m, v, v_max)
