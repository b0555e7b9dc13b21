"""Local Prodigy: every client runs Adam with Prodigy's estimate of how far to go; nothing to tune.

Mishchenko, Defazio, "Prodigy: an expeditiously adaptive parameter-free learner", ICML 2024, on the
clients of FedAvg (lines numbered by us; β1 = 0.9, β2 = 0.999, ε = 1e-8).

     1  sample S clients; each starts at θ_i = x_0 = θ, m = z = 0, r = 0, with the d and v it left
        (at first d_0 and 0)
     2      m = β1 m + (1 - β1) d ∇F(θ_i; ξ);  v = β2 v + (1 - β2) d^2 ∇F(θ_i; ξ)^2
     3      r = sqrt(β2) r + d^2 <∇F(θ_i; ξ), x_0 - θ_i>;  z = sqrt(β2) z + d^2 ∇F(θ_i; ξ)
     4      θ_i = θ_i - d m / (sqrt(v) + d ε)
     5      d = max(d, r / ||z||_1)                                  K times
     6      upload Δ_i = θ - θ_i
     7  θ = θ - mean_i Δ_i
     8  download θ

Wire: d down, d up. Memory: d and v. Tuning: none; d_0 = 1e-6 as published.
Deviations: our combination; no paper has it. r and z are divided by d_0, which their ratio ignores.
With K = 1 there is no r, and d stays d_0.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar, NamedTuple

from tunefree.core import OPEN, About, Step, Vec
from tunefree.methods.local_sgd import Model, Up
from tunefree_evidence.baselines.local_optimizer import LocalOptimizer

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class Client(NamedTuple):
    v: Vec
    d: float


class Run(NamedTuple):
    x_0: Vec
    z: Vec
    m: Vec
    v: Vec
    d: float
    r: float = 0.0


@dataclass(frozen=True)
class LocalProdigy(LocalOptimizer):  # 6, 7, 8
    d_0: float = OPEN

    about: ClassVar[About] = About(
        title="Local Prodigy",
        family="averaging, adaptive clients",
        paper="Mishchenko, Defazio, ICML 2024, on clients",
        steps={"d_0": Step("1e-6", lambda: 1e-6)},
        weights="mean",
        steady=False,
    )

    def client(self, theta0: Vec) -> Client:
        return Client(v=0 * theta0, d=self.d_0)

    def begin(self, client: Client, down: Model) -> Run:
        zero = 0 * down.theta
        return Run(down.theta, zero, zero, client.v, client.d)  # 1

    def step(self, run: Run, theta_i: Vec, grad: Vec) -> tuple[Run, Vec]:
        x_0, z, m, v, d, r = run
        m = BETA1 * m + (1 - BETA1) * d * grad  # 2
        v = BETA2 * v + (1 - BETA2) * d * d * grad * grad
        weight = d * d / self.d_0
        r = sqrt(BETA2) * r + weight * float(grad @ (x_0 - theta_i))  # 3
        z = sqrt(BETA2) * z + weight * grad
        far = float(z.abs().sum())
        longer = max(d, r / far) if far else d  # 5
        return Run(x_0, z, m, v, longer, r), d * m / (v.sqrt() + d * EPSILON)  # 4

    def end(self, client: Client, run: Run, delta: Vec) -> tuple[Client, Up]:
        return Client(run.v, run.d), Up(delta)
