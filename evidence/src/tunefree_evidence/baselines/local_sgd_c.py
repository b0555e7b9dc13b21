"""LOCAL-SGD-C: local SGD compressed in both directions, with error feedback on both sides.

Gao, Xu, Huang, "On the convergence of communication-efficient local SGD for federated learning",
AAAI 2021 (lines numbered by us).

     1  require θ^0 at the server and at all clients; e_i = 0; E = 0
     2  all clients start at θ_i = θ
     3      θ_i = θ_i - η ∇F(θ_i; ξ)                                 K times
     4      u_i = θ - θ_i + e_i
     5      upload C(u_i)
     6      e_i = u_i - C(u_i)
     7  w = (1/S) Σ C(u_i) + E
     8  download C(w); server and clients take θ = θ - C(w)
     9  E = w - C(w)

Wire: C(d) down and a step number, C(d) up; with S < N d down. Memory: θ, e_i. Tuning: η.
Deviations: only the abstract was available, so this is error-compensated double compression as
others describe it. Published for S = N. With S < N a client may have been away, so θ itself is
sent and e_i stays as it is while the client is away. The server stores w instead of E, and
compresses it again where it needs C(w).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tunefree.core import About, Exchange, Method, Oracle, Replies, Vec, mean, stream
from tunefree.errors import WireError
from tunefree.methods.local_sgd import Model, Sent
from tunefree.wire import TOP_5_PERCENT, Compressed, Compressor, demand


class Server(NamedTuple):
    theta: Vec
    w: Vec
    t: int


class Client(NamedTuple):
    theta: Vec
    e_i: Vec
    t: int  # corrections applied so far


class Correction(NamedTuple):
    delta: Compressed
    t: int


@dataclass(frozen=True)
class LocalSGDC(Method):
    eta: float = 0.1
    C: Compressor = TOP_5_PERCENT

    about: ClassVar[About] = About(
        title="LOCAL-SGD-C",
        family="averaging, error feedback, compressed both ways",
        paper="Gao, Xu, Huang, AAAI 2021",
        grid={"eta": (1e-2, 3e-2, 1e-1, 3e-1)},
        weights="mean",
        steady=False,
    )

    def __post_init__(self) -> None:
        demand(self.C, "contractive", self.about.title)

    def server(self, theta0: Vec) -> Server:
        return Server(theta0, w=0 * theta0, t=0)  # 1

    def client(self, theta0: Vec) -> Client:
        return Client(theta0, e_i=0 * theta0, t=0)  # 1

    def round(self) -> tuple[Exchange, ...]:
        Down = Model if self.sys.S < self.sys.N else Correction
        return (Exchange(Down, Sent, self.broadcast, self.local, self.aggregate),)

    def broadcast(self, s: Server) -> Correction | Model:
        if self.sys.S < self.sys.N:
            return Model(s.theta)
        return Correction(self.compressed(s.w, s.t), s.t)  # 8

    def compressed(self, w: Vec, t: int) -> Compressed:
        """C(w) with the randomness of step t, the same at every call."""
        return self.C(w, stream(0, self.about.title, t))

    def local(self, client: Client, down: Correction | Model, F: Oracle) -> tuple[Client, Sent]:
        theta, t = followed(client, down)  # 2
        D = 0 * theta  # θ_i = θ - η D
        for _ in range(self.sys.K):
            D = D + F.grad(theta - self.eta * D, F.draw())  # 3
        u = self.eta * D + client.e_i  # 4
        delta = self.C(u, F.rng)  # 5
        return Client(theta, u - delta.dense(), t), Sent(delta)  # 6

    def aggregate(self, s: Server, replies: Replies) -> Server:
        E = s.w - self.compressed(s.w, s.t).dense()  # 9
        w = mean(r.up.delta.dense() for r in replies) + E  # 7
        return Server(s.theta - self.compressed(w, s.t + 1).dense(), w, s.t + 1)  # 8


def followed(client: Client, down: Correction | Model) -> tuple[Vec, int]:
    """The server's model as this client knows it, and how many corrections it has applied."""
    if isinstance(down, Model):
        return down.theta, client.t
    if down.t != client.t:
        raise WireError(
            f"`delta` corrects the model of step {down.t}, but the client has that of step "
            f"{client.t}: with S = N LOCAL-SGD-C needs every client at every step"
        )
    return client.theta - down.delta.dense(), client.t + 1
