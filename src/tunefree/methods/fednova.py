"""FedNova: normalised averaging, for clients that do unequal amounts of work.

Wang, Liu, Liang, Joshi, Poor, "Tackling the objective inconsistency problem in heterogeneous
federated optimization", NeurIPS 2020 (lines numbered by us; k_i is the paper's τ_i).

     1  sample S clients; each starts at θ_i = θ, u = 0
     2      u = ρ u + ∇F(θ_i; ξ) + μ (θ_i - θ);  θ_i = θ_i - η u     k_i times
     3      a_i = k_i                                       plain SGD
            a_i = [k_i - ρ (1 - ρ^k_i) / (1 - ρ)] / (1 - ρ)   with local momentum ρ
            a_i = [1 - (1 - η μ)^k_i] / (η μ)                 with the proximal term μ
     4      upload Δ_i = θ - θ_i, a_i and k_i
     5  a = mean_i a_i, or a = mean_i k_i                   effective "a", or "steps"
     6  θ = θ - s a mean_i (Δ_i / a_i)
     7  download θ

Wire: d down, d and two scalars up. Memory: none. Tuning: η (and ρ or μ).
Deviations: k_i = K for all unless local work is given in epochs, and then with "a" lines 5 and 6
only average; "steps" is what the authors' code does with the proximal term. a_i is sent in
32 bits. Clients have equal weights; weighting "examples" has the paper's p_i in lines 5 and 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from tunefree.core import About, Client, Exchange, Oracle, Replies, Vec, mean
from tunefree.errors import ConfigError
from tunefree.methods.local_sgd import LocalSGD, Model


class Up(NamedTuple):
    delta: Vec
    a: float
    steps: int


@dataclass(frozen=True)
class FedNova(LocalSGD):
    s: float = 1.0
    rho: float = 0.0
    mu: float = 0.0
    effective: Literal["a", "steps"] = "a"

    about: ClassVar[About] = About(
        title="FedNova",
        family="averaging, normalised by work",
        paper="Wang, Liu, Liang, Joshi, Poor, NeurIPS 2020",
        grid={"eta": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)},
        weights="own",
    )

    def __post_init__(self) -> None:
        if self.rho and self.mu:
            raise ConfigError(
                f"and option.mu = {self.mu} cannot be combined in FedNova",
                "choose local momentum or the proximal term",
                setting="option.rho",
                value=self.rho,
            )
        if not 0 <= self.rho < 1:
            raise ConfigError(
                "is out of range", "give one below 1", setting="option.rho", value=self.rho
            )

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Model, Up, self.broadcast, self.local, self.aggregate),)  # 7

    def local(self, client: Client, down: Model, F: Oracle) -> tuple[Client, Up]:
        eta, rho, mu, steps = self.eta, self.rho, self.mu, self.sys.K
        D, u = 0 * down.theta, 0 * down.theta  # θ_i - θ = -η D
        for _ in range(steps):
            u = rho * u + F.grad(down.theta - eta * D, F.draw()) - mu * eta * D  # 2
            D = D + u
        a = down.theta.new_tensor(self.a(steps)).float().item()  # to 32 bits
        return client, Up(eta * D, a, steps)  # 4

    def a(self, steps: int) -> float:
        rho, step = self.rho, self.eta * self.mu
        if rho:
            return (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)  # 3
        return (1 - (1 - step) ** steps) / step if step else float(steps)  # 3

    def aggregate(self, s: Model, replies: Replies, sizes: Sequence[int] | None = None) -> Model:
        p = sizes or [1] * len(replies)
        work = [r.up.a if self.effective == "a" else r.up.steps for r in replies]
        a = sum(p_i * a_i for p_i, a_i in zip(p, work, strict=True)) / sum(p)  # 5
        moves = (r.up.delta / r.up.a for r in replies)
        return Model(s.theta - self.s * a * mean(moves, sizes))  # 6
