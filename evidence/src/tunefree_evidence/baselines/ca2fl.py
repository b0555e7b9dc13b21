"""CA2FL: buffered averaging, corrected by what every client sent last.

Wang, Cao, Wu, Chen, Chen, "Tackling the data heterogeneity in asynchronous federated learning with
cached update calibration", ICLR 2024 (lines numbered by us).

     1  require θ^0; h_i = 0 for all i; h = 0
     2  receive θ as it was τ_i steps ago; θ_i = θ
     3      θ_i = θ_i - η ∇F(θ_i; ξ)                                 K times
     4  upload Δ_i = θ - θ_i
     5  when S uploads have come:
     6      v = h + (1/S) Σ (Δ_i - h_i)
     7      θ = θ - s v                                              s is the paper's η_g
     8      h = h + (1/N) Σ (Δ_i - h_i);  h_i = Δ_i
     9  send θ

Wire: d down, d up. Memory: h_i. Tuning: η and s.
Deviations: the paper's server stores all N h_i; here each client stores its own and line 4
uploads Δ_i - h_i, all that lines 6 and 8 need. No client is in a buffer twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tunefree.core import About, Exchange, Method, Oracle, Replies, Vec, mean
from tunefree.methods.local_sgd import Model


class Server(NamedTuple):
    theta: Vec
    h: Vec


class Client(NamedTuple):
    h_i: Vec


class Up(NamedTuple):
    dh: Vec


@dataclass(frozen=True)
class CA2FL(Method):
    eta: float = 0.1
    s: float = 1.0

    about: ClassVar[About] = About(
        title="CA2FL",
        family="asynchronous: averaging, cached updates",
        paper="Wang, Cao, Wu, Chen, Chen, ICLR 2024",
        grid={"eta": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1), "s": (0.5, 1.0)},
        sums={},
    )

    def server(self, theta0: Vec) -> Server:
        return Server(theta0, h=0 * theta0)  # 1

    def client(self, theta0: Vec) -> Client:
        return Client(h_i=0 * theta0)  # 1

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Model, Up, lambda s: Model(s.theta), self.local, self.aggregate),)  # 9

    def local(self, client: Client, down: Model, F: Oracle) -> tuple[Client, Up]:
        D = 0 * down.theta  # θ_i = θ - η D
        for _ in range(self.sys.K):
            D = D + F.grad(down.theta - self.eta * D, F.draw())  # 3
        delta = self.eta * D
        return Client(h_i=delta), Up(dh=delta - client.h_i)  # 4, 8

    def aggregate(self, s: Server, replies: Replies) -> Server:
        N, S = self.sys.N, len(replies)
        dh = mean(r.up.dh for r in replies)
        return Server(theta=s.theta - self.s * (s.h + dh), h=s.h + S / N * dh)  # 6, 7, 8
