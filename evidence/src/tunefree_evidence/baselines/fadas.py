"""FADAS: AMSGrad on the server over buffered updates, with a step that may adapt to delays.

Wang, Wang, Lu, Chen, "FADAS: towards federated adaptive asynchronous optimization", ICML 2024
(lines numbered by us).

     1  require θ^0; m = v = v_max = 0
     2  receive θ as it was τ_i steps ago; θ_i = θ
     3      θ_i = θ_i - η ∇F(θ_i; ξ)                                 K times
     4  upload Δ_i = θ - θ_i
     5  when S uploads have come: D = (1/S) Σ Δ_i
     6      m = β1 m + (1 - β1) D;  v = β2 v + (1 - β2) D^2;  v_max = max(v_max, v)
     7      τ = the largest of the τ_i
     8      γ_t = γ; if delay = "adaptive" and τ > τ_c:  γ / τ, or min(γ, 1 / τ)
     9      θ = θ - γ_t m / (sqrt(v_max) + ε)
    10  send θ

Wire: d down, d up. Memory: none. Tuning: η and γ, the paper's η_l and η (and τ_c).
Deviations: `rule = "code"` is γ / τ of the authors' code, `"paper"` the min of the paper, which
never binds at their γ; D points downhill; no bias correction; Δ_i is taken from the model received.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from tunefree.core import About, Replies, Vec, mean
from tunefree.methods.local_sgd import LocalSGD


class Server(NamedTuple):
    theta: Vec
    m: Vec
    v: Vec
    v_max: Vec


@dataclass(frozen=True)
class FADAS(LocalSGD):  # 2, 3, 4, 10
    gamma: float = 1e-3
    delay: Literal["plain", "adaptive"] = "plain"
    rule: Literal["code", "paper"] = "code"
    tau_c: float = 1.0
    beta1: float = 0.9
    beta2: float = 0.99
    epsilon: float = 1e-8

    about: ClassVar[About] = About(
        title="FADAS",
        family="asynchronous: adaptive server",
        paper="Wang, Wang, Lu, Chen, ICML 2024",
        grid={"eta": (1e-2, 3e-2, 1e-1, 3e-1), "gamma": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)},
        weights="mean",
    )

    def server(self, theta0: Vec) -> Server:
        return Server(theta0, m=0 * theta0, v=0 * theta0, v_max=0 * theta0)  # 1

    def aggregate(self, s: Server, replies: Replies) -> Server:
        beta1, beta2 = self.beta1, self.beta2
        D = mean(r.up.delta for r in replies)  # 5
        m, v = beta1 * s.m + (1 - beta1) * D, beta2 * s.v + (1 - beta2) * D * D  # 6
        v_max = s.v_max.maximum(v)
        gamma = self.step(max(r.tau for r in replies))  # 7
        theta = s.theta - gamma * m / (v_max.sqrt() + self.epsilon)  # 9
        return Server(theta, m, v, v_max)

    def step(self, tau: int) -> float:
        if self.delay == "plain" or tau <= self.tau_c:
            return self.gamma
        return self.gamma / tau if self.rule == "code" else min(self.gamma, 1 / tau)  # 8
