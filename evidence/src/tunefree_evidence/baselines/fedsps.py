"""FedSPS: every local step has the size that Polyak's rule gives it.

Mukherjee, Loizou, Stich, "Locally adaptive federated learning", TMLR 2024 (lines numbered by us).

     1  sample S clients; each starts at θ_i = θ
     2      η_k = min{(F(θ_i; ξ) - l*) / (c ||∇F(θ_i; ξ)||^2), η_b}
     3      θ_i = θ_i - η_k ∇F(θ_i; ξ)                               K times
     4      upload Δ_i = θ - θ_i
     5  θ = θ - mean_i Δ_i
     6  download θ
    "decreasing" (FedDecSPS), with c_k = c sqrt(k + 1), c_{-1} = c and η_{-1} = η_b, replaces 2 by
    2'      η_k = (1/c_k) min{(F(θ_i; ξ) - l*) / ||∇F(θ_i; ξ)||^2, c_{k-1} η_{k-1}}

Wire: d down, d up. Memory: k and c_{k-1} η_{k-1}, two scalars. Tuning: c and η_b, a little.
Deviations: none in 2; c = 0.5 and η_b = 1 are usual, not read in the paper. In 2' the count k is a
client's own and continues from round to round, as in the paper when all clients take part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from tunefree.core import About, Exchange, Method, Oracle, Replies, Vec, mean, norm
from tunefree.methods.local_sgd import Model, Up

TINY = 1e-30  # a zero gradient gets the step η_b, and does not move


class Client(NamedTuple):
    k: int
    z: float  # c_{k-1} η_{k-1}


@dataclass(frozen=True)
class FedSPS(Method):
    c: float = 0.5
    eta_b: float = 1.0
    l_star: float = 0.0
    rule: Literal["constant", "decreasing"] = "constant"

    about: ClassVar[About] = About(
        title="FedSPS",
        family="averaging, Polyak steps",
        paper="Mukherjee, Loizou, Stich, TMLR 2024",
        grid={"c": (0.01, 0.1, 0.5, 1.0), "eta_b": (0.1, 1.0, 5.0)},
        weights="mean",
    )

    def server(self, theta0: Vec) -> Model:
        return Model(theta0)

    def client(self, theta0: Vec) -> Client:
        return Client(k=0, z=self.c * self.eta_b)

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Model, Up, lambda s: Model(s.theta), self.local, self.aggregate),)  # 6

    def local(self, client: Client, down: Model, F: Oracle) -> tuple[Client, Up]:
        k, z = client
        delta = 0 * down.theta  # θ_i = θ - Δ_i
        for _ in range(self.sys.K):
            loss, grad = F.loss_and_grad(down.theta - delta, F.draw())
            polyak = (loss - self.l_star) / (norm(grad) ** 2).clamp_min(TINY)
            step = (polyak / self.c).clamp_max(self.eta_b)  # 2
            if self.rule == "decreasing":
                z, k = min(float(polyak), z), k + 1
                step = polyak.new_tensor(z / (self.c * k**0.5))  # 2'
            delta = delta + step * grad  # 3
        return Client(k, z), Up(delta)  # 4

    def aggregate(self, s: Model, replies: Replies) -> Model:
        return Model(s.theta - mean(r.up.delta for r in replies))  # 5
