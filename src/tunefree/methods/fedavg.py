"""FedAvg: local SGD, then the average of the models.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas, "Communication-efficient learning of deep networks
from decentralized data", AISTATS 2017, Algorithm 1 (lines numbered by us).

     1  sample S clients; each starts at θ_i = θ
     2      θ_i = θ_i - η ∇F(θ_i; ξ)                                 K times
     3      upload Δ_i = θ - θ_i
     4  θ = θ - s mean_i Δ_i                                         s = 1 averages the models
     5  download θ

Wire: d down, d up. Memory: none. Tuning: η (and s).
Deviations: clients have equal weights, as in the papers we compare with; `weighting = "examples"`
weights them by their samples, as published. Local work is K steps, or epochs, as published, where
`local_epochs` is set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tunefree.core import About, Replies, mean
from tunefree.methods.local_sgd import LocalSGD, Model


@dataclass(frozen=True)
class FedAvg(LocalSGD):  # 1, 2, 3, 5
    s: float = 1.0
    weighting: Literal["uniform", "examples"] = "uniform"

    about: ClassVar[About] = About(
        title="FedAvg",
        family="averaging",
        paper="McMahan et al., AISTATS 2017",
        grid={"eta": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)},
        weights="mean",
    )

    def aggregate(self, s: Model, replies: Replies) -> Model:
        weights = [r.n for r in replies] if self.weighting == "examples" else None
        return Model(s.theta - self.s * mean((r.up.delta for r in replies), weights))  # 4
