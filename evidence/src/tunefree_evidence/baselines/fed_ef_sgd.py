"""Fed-EF-SGD: FedAvg with compressed uploads and error feedback on the client.

Li, Li, "Analysis of error feedback in federated non-convex optimization with biased compression:
fast convergence and partial participation", ICML 2023 (lines numbered by us).

     1  require θ^0; e_i = 0
     2  sample S clients; each starts at θ_i = θ
     3      θ_i = θ_i - η ∇F(θ_i; ξ)                                 K times
     4      u_i = θ - θ_i + e_i
     5      upload C(u_i)
     6      e_i = u_i - C(u_i)
     7  θ = θ - s (1/S) Σ C(u_i)
     8  download θ

Wire: d down, C(d) up. Memory: e_i, which is left as it is while the client is away. Tuning: η, s.
Deviations: none in the formulas; the paper's local and global steps are η and s.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from tunefree.core import About, Exchange, Method, Oracle, Replies, Vec, mean
from tunefree.methods.local_sgd import Model, Sent
from tunefree.wire import TOP_5_PERCENT, Compressor, demand


class Client(NamedTuple):
    e_i: Vec


@dataclass(frozen=True)
class ErrorFeedback(Method):
    """The clients of Fed-EF-SGD and Fed-EF-AMS."""

    eta: float = 0.1
    C: Compressor = TOP_5_PERCENT

    def __post_init__(self) -> None:
        demand(self.C, "contractive", self.about.title)

    def client(self, theta0: Vec) -> Client:
        return Client(e_i=0 * theta0)  # 1

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Model, Sent, lambda s: Model(s.theta), self.local, self.aggregate),)  # 8

    def local(self, client: Client, down: Model, F: Oracle) -> tuple[Client, Sent]:
        D = 0 * down.theta  # θ_i = θ - η D
        for _ in range(self.sys.K):
            D = D + F.grad(down.theta - self.eta * D, F.draw())  # 3
        u = self.eta * D + client.e_i  # 4
        delta = self.C(u, F.rng)  # 5
        return Client(u - delta.dense()), Sent(delta)  # 6

    @abstractmethod
    def aggregate(self, s: Any, replies: Replies) -> Any:
        """What the server does with the C(u_i)."""


@dataclass(frozen=True)
class FedEFSGD(ErrorFeedback):
    s: float = 1.0

    about: ClassVar[About] = About(
        title="Fed-EF-SGD",
        family="averaging, error feedback, compressed",
        paper="Li, Li, ICML 2023",
        grid={"eta": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1), "s": (0.3, 1.0)},
        weights="mean",
    )

    def server(self, theta0: Vec) -> Model:
        return Model(theta0)

    def aggregate(self, s: Model, replies: Replies) -> Model:
        return Model(s.theta - self.s * mean(r.up.delta.dense() for r in replies))  # 7
