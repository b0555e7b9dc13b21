"""Local schedule-free AdamW: every client averages its own iterates, at the published step.

Defazio, Yang, Mehta, Mishchenko, Khaled, Cutkosky, "The road less scheduled", NeurIPS 2024, on the
clients of FedAvg (lines numbered by us; y is where gradients are taken; β1 = 0.9, β2 = 0.999,
ε = 1e-8, no weight decay, no warm-up).

     1  sample S clients; each starts at x = y = z = θ, w = 0, with the v and k it left (at first 0)
     2      k = k + 1;  v = β2 v + (1 - β2) ∇F(y; ξ)^2;  η_k = η sqrt(1 - β2^k)
     3      z = z - η_k ∇F(y; ξ) / (sqrt(v) + ε)
     4      w = w + η_k^2;  x = x + (η_k^2 / w) (z - x);  y = β1 x + (1 - β1) z     K times
     5      upload Δ_i = θ - x
     6  θ = θ - mean_i Δ_i
     7  download θ

Wire: d down, d up. Memory: v and k. Tuning: none; η = 0.0025, the published default.
Deviations: our combination; no paper has it. The average is over one round, because z belongs to
the model that the next download replaces.
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
    k: int = 0


class Run(NamedTuple):
    v: Vec
    k: int
    x: Vec  # θ - x and θ - z
    z: Vec
    w: float = 0.0


@dataclass(frozen=True)
class LocalScheduleFree(LocalOptimizer):  # 6, 7
    eta: float = OPEN

    about: ClassVar[About] = About(
        title="Local schedule-free AdamW",
        family="averaging, adaptive clients",
        paper="Defazio et al., NeurIPS 2024, on clients",
        steps={"eta": Step("0.0025", lambda: 0.0025)},
        weights="mean",
    )

    def client(self, theta0: Vec) -> Client:
        return Client(v=0 * theta0)

    def begin(self, client: Client, down: Model) -> Run:
        return Run(client.v, client.k, x=0 * down.theta, z=0 * down.theta)  # 1

    def step(self, run: Run, theta_i: Vec, grad: Vec) -> tuple[Run, Vec]:
        v, k, x, z, w = run
        k, v = k + 1, BETA2 * v + (1 - BETA2) * grad * grad  # 2
        step = self.eta * sqrt(1 - BETA2**k)
        z = z + step * grad / (v.sqrt() + EPSILON)  # 3
        w += step * step
        x = x + step * step / w * (z - x)  # 4
        return Run(v, k, x, z, w), BETA1 * (x - run.x) + (1 - BETA1) * (z - run.z)

    def end(self, client: Client, run: Run, delta: Vec) -> tuple[Client, Up]:
        return Client(run.v, run.k), Up(run.x)  # 5
