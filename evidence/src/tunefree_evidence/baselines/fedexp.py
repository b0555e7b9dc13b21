"""FedExP: FedAvg whose server steps further the more the clients' displacements cancel out.

Jhunjhunwala, Wang, Joshi, "FedExP: speeding up federated averaging via extrapolation", ICLR 2023,
Algorithm 1 (lines numbered by us; w is the server's iterate, θ the model that it hands out).

     1  require w = θ^0
     2  sample S clients; each starts at θ_i = w
     3      θ_i = θ_i - η ∇F(θ_i; ξ)                                 K times
     4      upload Δ_i = w - θ_i
     5  D = mean_i Δ_i;  η_g = max{1, Σ_i ||Δ_i||^2 / (2 S (||D||^2 + ε))}
     6  w' = w - η_g D
     7  θ = (w + w') / 2                                             final "average"
        or  θ = w'                                                   final "last"
     8  download w

Wire: d down, d up. Memory: none. Tuning: η and ε.
Deviations: the paper averages the last two iterates for its final model, as η_g makes them swing;
here θ is evaluated in every round, so line 7 does it in every round, and changes no w. S is the
number of replies. ε is constant and, as printed, not multiplied by S; the authors' code does that,
and lets ε and η decay. ε is added to ||D||^2 and has its unit. Clients have equal weights, or with
weighting "examples" as in the authors' code: Σ p_i Δ_i and Σ p_i ||Δ_i||^2 with p_i = n_i / Σ n_j.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from tunefree.core import About, Replies, Vec, mean, norm
from tunefree.methods.local_sgd import LocalSGD, Model


class Server(NamedTuple):
    theta: Vec
    w: Vec


@dataclass(frozen=True)
class FedExP(LocalSGD):  # 2, 3, 4
    epsilon: float = 1e-3
    final: Literal["average", "last"] = "average"

    about: ClassVar[About] = About(
        title="FedExP",
        family="averaging, extrapolated",
        paper="Jhunjhunwala, Wang, Joshi, ICLR 2023",
        grid={
            "eta": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1),
            "epsilon": (1e-3, 1e-2, 1e-1),
        },
        weights="own",
    )

    def server(self, theta0: Vec) -> Server:
        return Server(theta0, w=theta0)  # 1

    def broadcast(self, s: Server) -> Model:
        return Model(s.w)  # 8

    def aggregate(self, s: Server, replies: Replies, sizes: Sequence[int] | None = None) -> Server:
        D, p = mean((r.up.delta for r in replies), sizes), sizes or [1] * len(replies)
        squares = sum(p_i * norm(r.up.delta) ** 2 for p_i, r in zip(p, replies, strict=True))
        eta_g = squares / (2 * sum(p) * (norm(D) ** 2 + self.epsilon))
        w = s.w - eta_g.clamp_min(1) * D  # 5, 6
        return Server(theta=(s.w + w) / 2 if self.final == "average" else w, w=w)  # 7
