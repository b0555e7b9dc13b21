"""DeFedAvg-nIID: the plain mean of delayed updates, from clients drawn uniformly.

Wang, Li, Jin, Zhang, "Achieving linear speedup in asynchronous federated learning with
heterogeneous clients", 2024 (lines numbered by us).

     1  give the model θ to S clients drawn from all N; a busy one keeps it in its queue
     2  each client takes the oldest model of its queue; θ_i = θ
     3      θ_i = θ_i - η ∇F(θ_i; ξ)                                 K times
     4  upload Δ_i = θ - θ_i
     5  when S uploads have come: θ = θ - s (1/S) Σ Δ_i              s is the paper's global step

Wire: d down, d up. Memory: none (the queue contains what was received). Tuning: η and s.
Deviations: reconstructed from the abstract and from tables that compare it; no code and no readable
listing was found. Line 1 belongs to the schedule: run it with `dispatch = "queue"`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tunefree.core import About, Replies, mean
from tunefree.methods.local_sgd import LocalSGD, Model


@dataclass(frozen=True)
class DeFedAvgNIID(LocalSGD):  # 1, 3, 4
    s: float = 1.0

    about: ClassVar[About] = About(
        title="DeFedAvg-nIID",
        family="asynchronous: averaging, uniform assignment",
        paper="Wang, Li, Jin, Zhang, 2024",
        grid={"eta": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1), "s": (0.5, 1.0)},
        weights="mean",
    )

    def aggregate(self, s: Model, replies: Replies) -> Model:
        return Model(s.theta - self.s * mean(r.up.delta for r in replies))  # 5
