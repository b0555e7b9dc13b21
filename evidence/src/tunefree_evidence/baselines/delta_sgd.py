"""Delta-SGD: every local step adapts to the smoothness seen in the last one; nothing to tune.

Kim, Toghani, Uribe, Kyrillidis, "Adaptive federated learning with auto-tuned clients", ICLR 2024,
Algorithm 1 (lines numbered by us; r is the paper's θ).

     1  sample S clients; each starts at θ_i = θ, η = η_0, r = 1
     2      θ_i' = θ_i - η ∇F(θ_i; ξ)                               K times; between two of them
     3      η' = min{γ ||θ_i' - θ_i|| / (2 ||∇F(θ_i'; ξ') - ∇F(θ_i; ξ')||), sqrt(1 + δ r) η}
     4      r = η' / η
     5      upload Δ_i = θ - θ_i
     6  θ = θ - mean_i Δ_i
     7  download θ

Wire: d down, d up. Memory: none. Tuning: none; γ = 2, δ = 0.1 and η_0 = 0.2 for every problem.
Deviations: the page does not say on which batches line 3 compares gradients; ours are both on the
next step's batch ξ', as in the authors' code, which costs a second gradient. `batches = "own"` is
the other reading, ∇F(θ_i'; ξ') - ∇F(θ_i; ξ), which is free but takes noise for curvature. δ is of
the paper's experiments; its Algorithm 1 has δ = 1. Where nothing moved or no gradient changed, η'
is the second term. ||θ_i' - θ_i|| is η ||∇F||: no models are subtracted.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar, Literal

from tunefree.core import (
    OPEN,
    About,
    Exchange,
    Method,
    NoState,
    Oracle,
    Replies,
    Step,
    Vec,
    mean,
    norm,
)
from tunefree.methods.local_sgd import Model, Up


@dataclass(frozen=True)
class DeltaSGD(Method):
    gamma: float = OPEN
    delta: float = OPEN
    eta_0: float = OPEN
    batches: Literal["same", "own"] = "same"

    about: ClassVar[About] = About(
        title="Delta-SGD",
        family="averaging, local steps from local smoothness",
        paper="Kim, Toghani, Uribe, Kyrillidis, ICLR 2024",
        steps={
            "gamma": Step("2", lambda: 2.0),
            "delta": Step("0.1", lambda: 0.1),
            "eta_0": Step("0.2", lambda: 0.2),
        },
        weights="mean",
    )

    def server(self, theta0: Vec) -> Model:
        return Model(theta0)

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Model, Up, lambda s: Model(s.theta), self.local, self.aggregate),)  # 7

    def local(self, client: NoState, down: Model, F: Oracle) -> tuple[NoState, Up]:
        D, eta, r = 0 * down.theta, self.eta_0, 1.0  # 1: θ_i = θ - D
        grad = F.grad(down.theta, F.draw())
        for _ in range(self.sys.K - 1):
            D_prev, D, xi = D, D + eta * grad, F.draw()  # 2
            new = F.grad(down.theta - D, xi)
            old = F.grad(down.theta - D_prev, xi) if self.batches == "same" else grad
            eta_new = self.step(eta, r, eta * float(norm(grad)), float(norm(new - old)))  # 3
            grad, eta, r = new, eta_new, eta_new / eta  # 4
        return client, Up(delta=D + eta * grad)  # 2, 5

    def step(self, eta: float, r: float, moved: float, changed: float) -> float:
        longest = sqrt(1 + self.delta * r) * eta
        return min(self.gamma * moved / (2 * changed), longest) if moved and changed else longest

    def aggregate(self, s: Model, replies: Replies) -> Model:
        return Model(s.theta - mean(r.up.delta for r in replies))  # 6
