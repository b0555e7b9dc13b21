"""FedDyn: a linear term on every client that makes the local optima agree with the global one.

Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama, "Federated learning based on dynamic
regularization", ICLR 2021, Algorithm 1 (lines numbered by us).

     1  require θ^0; h = 0 and h_i = 0
     2  sample S clients; each starts at θ_i = θ
     3      θ_i = θ_i - η (∇F(θ_i; ξ) - h_i + α (θ_i - θ))           K times
     4      h_i = h_i - α (θ_i - θ)
     5      upload Δ_i = θ - θ_i
     6  h = h - (α/N) Σ (θ_i - θ)
     7  θ = mean_i θ_i - h / α
     8  download θ

Wire: d down, d up. Memory: h_i, which is left as it is while the client is away. Tuning: η and α.
Deviations: the paper asks for the minimum of the regularised loss; here K steps of SGD approximate
it. θ is evaluated. Unlike the authors' code: no clipping, and the same α for all clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tunefree.core import About, Oracle, Replies, Vec, mean
from tunefree.methods.local_sgd import LocalSGD, Model, Up


class Server(NamedTuple):
    theta: Vec
    h: Vec


class Client(NamedTuple):
    h_i: Vec


@dataclass(frozen=True)
class FedDyn(LocalSGD):  # 2, 8
    alpha: float = 0.01

    about: ClassVar[About] = About(
        title="FedDyn",
        family="dynamic regularisation",
        paper="Acar et al., ICLR 2021",
        grid={"eta": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1), "alpha": (1e-3, 1e-2, 1e-1)},
        sums={},
    )

    def server(self, theta0: Vec) -> Server:
        return Server(theta0, h=0 * theta0)  # 1

    def client(self, theta0: Vec) -> Client:
        return Client(h_i=0 * theta0)  # 1

    def local(self, client: Client, down: Model, F: Oracle) -> tuple[Client, Up]:
        (h_i,), eta, alpha = client, self.eta, self.alpha
        D = 0 * h_i  # θ_i - θ = -η D
        for _ in range(self.sys.K):
            D = D + F.grad(down.theta - eta * D, F.draw()) - h_i - alpha * eta * D  # 3
        return Client(h_i + alpha * eta * D), Up(delta=eta * D)  # 4, 5

    def aggregate(self, s: Server, replies: Replies) -> Server:
        N, S, alpha = self.sys.N, len(replies), self.alpha
        delta = mean(r.up.delta for r in replies)
        h = s.h + alpha * S / N * delta  # 6
        return Server(s.theta - delta - h / alpha, h)  # 7
