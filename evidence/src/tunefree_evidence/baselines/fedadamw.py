"""FedAdamW: local AdamW that is told how curved and where the others went.

Liu, Shang, Zhu, Liu, Liu, Liu, "FedAdamW: a communication-efficient optimizer with convergence and
generalization guarantees for federated large models", AAAI 2026 (lines numbered by us; b is the
mean over each tensor, g the paper's Δ_G).

     1  require θ^0; g = 0; u = 0, a number for each tensor; n = 0
     2  sample S clients; each starts at θ_i = θ, m = 0, v = u, k = 0
     3      k = k + 1, n = n + 1
            m = β1 m + (1 - β1) ∇F(θ_i; ξ);  v = β2 v + (1 - β2) ∇F(θ_i; ξ)^2
            θ_i = θ_i - η (m / (1 - β1^k) / (sqrt(v / (1 - β2^n)) + ε) + α g + λ θ_i)    K times
     4      upload Δ_i = θ - θ_i and b(v)
     5  θ = θ - mean_i Δ_i;  g = mean_i Δ_i / (η K);  u = mean_i b(v)
     6  download θ, g, u and n, the local steps so far
`moments` "reset" and "kept" are plain local AdamW: n = k, g = 0 and v = 0 in line 2, or a client's
own m, v and k as it left them; it uploads Δ_i and downloads θ alone.

Wire: 2d, a number for each tensor and n down, d and those numbers up; plain: d, d. Memory: none;
"kept": m, v and k. Tuning: η, λ and α.
Deviations: the card's; mainly blocks are whole tensors, and λ is 0 unless it is searched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from tunefree.core import (
    About,
    Client,
    Exchange,
    Message,
    NoState,
    Numbers,
    Replies,
    Server,
    Vec,
    mean,
)
from tunefree.geometry import split
from tunefree.methods.local_sgd import Up
from tunefree_evidence.baselines.local_optimizer import LocalOptimizer


class Aggregated(NamedTuple):
    """What the server has; v is u, spread over the tensors."""

    theta: Vec
    g: Vec
    v: Vec
    n: int = 0


class Down(NamedTuple):
    theta: Vec
    g: Vec
    u: Numbers
    n: int


class Curved(NamedTuple):
    delta: Vec
    u: Numbers


class Adam(NamedTuple):
    m: Vec
    v: Vec
    k: int = 0
    n: int = 0  # steps that v saw before these k
    push: Vec | float = 0.0  # α g


@dataclass(frozen=True)
class FedAdamW(LocalOptimizer):
    eta: float = 3e-4
    weight_decay: float = 0.0
    alpha: float = 0.5
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    moments: Literal["aggregated", "reset", "kept"] = "aggregated"

    about: ClassVar[About] = About(
        title="FedAdamW",
        family="adaptive clients",
        paper="Liu et al., AAAI 2026",
        grid={
            "eta": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2),
            "weight_decay": (0.0, 0.01),
            "alpha": (0.25, 0.5, 0.75),
        },
        weights="mean",
    )

    def server(self, theta0: Vec) -> Server:
        if self.moments != "aggregated":
            return super().server(theta0)
        return Aggregated(theta0, g=0 * theta0, v=0 * theta0)  # 1

    def client(self, theta0: Vec) -> Client:
        return Adam(0 * theta0, 0 * theta0) if self.moments == "kept" else NoState()

    def round(self) -> tuple[Exchange, ...]:
        if self.moments != "aggregated":
            return super().round()
        return (Exchange(Down, Curved, self.send, self.local, self.aggregate),)

    def send(self, s: Aggregated) -> Down:
        return Down(s.theta, s.g, self.blocks(s.v), s.n)  # 6

    def blocks(self, v: Vec) -> Numbers:
        """The mean of each tensor, in 32 bits as it is sent; 0 for one without numbers."""
        means = [float(b.sum()) / max(1, len(b)) for b in split(v, self.shapes)]
        return tuple(float(np.float32(number)) for number in means)

    def spread(self, v: Vec, u: Numbers) -> Vec:
        """The vector with these means, made of one that is zero."""
        for block, number in zip(split(v, self.shapes), u, strict=True):
            block += number
        return v

    def begin(self, client: Any, down: Message) -> Any:
        if self.moments == "kept":
            return client
        start = Adam(0 * down.theta, 0 * down.theta)
        if self.moments == "reset":
            return start
        return Adam(start.m, self.spread(start.v, down.u), n=down.n, push=self.alpha * down.g)  # 2

    def step(self, run: Adam, theta_i: Vec, grad: Vec) -> tuple[Adam, Vec]:
        (m, v, k, n, push), beta1, beta2 = run, self.beta1, self.beta2
        k, m, v = k + 1, beta1 * m + (1 - beta1) * grad, beta2 * v + (1 - beta2) * grad * grad
        below = (v / (1 - beta2 ** (n + k))).sqrt() + self.epsilon
        move = m / (1 - beta1**k) / below + push + self.weight_decay * theta_i
        return Adam(m, v, k, n, push), self.eta * move  # 3

    def end(self, client: Client, run: Adam, delta: Vec) -> tuple[Client, Message]:
        if self.moments == "aggregated":
            return client, Curved(delta, self.blocks(run.v))  # 4
        return run if self.moments == "kept" else client, Up(delta)

    def aggregate(self, s: Server, replies: Replies) -> Server:
        if self.moments != "aggregated":
            return super().aggregate(s, replies)
        delta, K = mean(r.up.delta for r in replies), self.sys.K
        columns = zip(*(r.up.u for r in replies), strict=True)
        v = self.spread(0 * delta, tuple(sum(us) / len(us) for us in columns))
        return Aggregated(s.theta - delta, delta / (self.eta * K), v, s.n + K)  # 5
