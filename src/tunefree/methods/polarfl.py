"""PolarFL: ParFreFL's skeleton in the model's own units; nothing to tune, not even the rounds.

Our own; see the card for its origin and for which parts are proved.

    r_l = ||θ^0_l||                        the unit of tensor l; of one that starts at zero, the
                                           others' median length for its size
    N(u)_l = u_l / ||u_l||                 tensor by tensor
    P(u)_l = O_l / ||O_l||                 O_l the polar factor of matrix l; vectors as N
    γ_t = (S K)^(1/4) / (t + 10)^(3/4), β_t = min(1, sqrt(S K / (t + 10)))
    D_t = sqrt(mean over l of (||x^t_l - θ^0_l|| / r_l)^2)          how far x has come
    L_t = Σ_{s<t} b_s h_s a_s γ_s,  Q_t = Σ_{s<t} (b_s h_s a_s γ_s)^2     how far it went; what
                                           D_t^2 would be about if it had gone at random
    R_t = max over 0 < s <= t of 8 (D_s^2 - Q_s) / L_s, at least 0
    a_t = min(1, max(0.1, R_t))            reach is earned on straight paths
    e_t = Σ_l r_l ||g^t_l||                what a step of every tensor's unit would gain
    h_t = min(1, 10^4 e_t / max over s <= t of e_s), h_{-1} = 1     where nothing is left to gain,
                                           steps fade out: normalised noise would lead away

     1  require θ^0; m_i = c_i = 0 for all i; c = 0; x = θ = θ^0
     2  sample S clients; each starts at x_i = x
     3      K times: m_i^k = (1 - β_t) m_i + β_t ∇F(x_i; ξ)
                     x_i = x_i - (h_{t-1} a_t γ_t / K) r N(m_i^k)
     4      m_i' = (1/K) Σ_k m_i^k;  upload d_i = C(m_i' - c_i);  c_i = c_i + d_i
     5  g = c + (1/S) Σ d_i;  x = x - b_t h_t a_t γ_t r P(g);  c = c + (1/N) Σ d_i
        b_t = 1 / sqrt(1 + τ_t), τ_t the mean age of the uploads in steps; 1 if none is late
     6  θ = θ + 9/(t + 9) (x - θ)                       the model that is evaluated and handed out
     7  download x, the steps (h_{t-1} a_t γ_t / K) r_l of all tensors, and β_t

With local epochs client i makes K_i steps of (h_{t-1} a_t γ_t / K_i) r, K_i stands in line 4, and
K in γ_t and β_t is the mean of the K_i: all clients reach equally far.

Wire: d and a number for each tensor down; d up, or C(d). Memory: m_i; if compressed also c_i,
which is m_i otherwise. Tuning: none. The constants are part of the method.
Options are ablations: geometry `sphere` takes the vector as one tensor, `tensor` uses N on the
server too; units `one` sets r_l = 1; average `off` hands out x; reach `distance` has
R_t = max over s <= t of D_s, and `off` sets a_t = 1; first_pass `on` is ParFreFL's line 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from tunefree.core import (
    About,
    Exchange,
    Method,
    Numbers,
    OpeningDown,
    Oracle,
    Replies,
    Shapes,
    Step,
    Vec,
    gradient_opening,
    mean,
)
from tunefree.geometry import (
    add_directions,
    descend,
    directions,
    distance,
    gain,
    polar_directions,
    units,
)
from tunefree.wire import Compressed, Compressor, demand, rounded


class Server(NamedTuple):
    theta: Vec
    x: Vec
    theta0: Vec
    c: Vec
    t: int = 0
    R: float = 0.0
    L: float = 0.0
    Q: float = 0.0
    E: float = 0.0  # the largest e so far
    h: float = 1.0


class Client(NamedTuple):
    c_i: Vec  # and m_i, which is the same


class CompressingClient(NamedTuple):
    c_i: Vec
    m_i: Vec


class Down(NamedTuple):
    x: Vec
    steps: Numbers
    beta: float


class Up(NamedTuple):
    d: Vec


class CompressedUp(NamedTuple):
    d: Compressed


class Pace(NamedTuple):
    """What a round does: a_t γ_t, and β_t."""

    step: float
    beta: float


@dataclass(frozen=True)
class PolarFL(Method):
    C: Compressor | None = None
    geometry: Literal["polar", "tensor", "sphere"] = "polar"
    units: Literal["own", "one"] = "own"
    average: Literal["on", "off"] = "on"
    reach: Literal["straight", "distance", "off"] = "straight"
    first_pass: Literal["off", "on"] = "off"

    about: ClassVar[About] = About(
        title="PolarFL",
        family="polar steps in own units, local momentum, averaged",
        paper="tunefree, 2026",
        steps={
            "gamma": Step(
                "(S K)^(1/4) / (t + 10)^(3/4)",
                lambda S, K, t: (S * K) ** 0.25 / (t + 10) ** 0.75,
            ),
            "beta": Step(
                "min(1, sqrt(S K / (t + 10)))",
                lambda S, K, t: min(1.0, (S * K / (t + 10)) ** 0.5),
            ),
        },
        means={"c": "c_i"},
    )

    def __post_init__(self) -> None:
        if self.C is not None:
            demand(self.C, "contractive", self.about.title)

    def pace(self, t: int, R: float) -> Pace:
        a = 1.0 if self.reach == "off" else min(1.0, max(0.1, R))
        gamma, beta = self.about.steps["gamma"], self.about.steps["beta"]
        return Pace(a * gamma.at(self.sys, t), beta.at(self.sys, t))

    @property
    def tensors(self) -> Shapes:
        return None if self.geometry == "sphere" else self.shapes

    def lengths(self, theta0: Vec) -> Numbers:
        r = units(theta0, self.tensors)
        return r if self.units == "own" else (1.0,) * len(r)

    def server(self, theta0: Vec) -> Server:
        return Server(theta0, theta0, theta0, c=0 * theta0)  # 1

    def client(self, theta0: Vec) -> Client | CompressingClient:
        return self.remember(0 * theta0, 0 * theta0)  # 1

    def remember(self, c_i: Vec, m_i: Vec) -> Client | CompressingClient:
        return Client(m_i) if self.C is None else CompressingClient(c_i, m_i)

    def opening(self) -> tuple[Exchange, ...]:
        if self.first_pass == "off":
            return ()
        return (
            gradient_opening(self.sys, lambda m: self.remember(m, m), lambda s, c: s._replace(c=c)),
        )

    def round(self) -> tuple[Exchange, ...]:
        kind = Up if self.C is None else CompressedUp
        return (Exchange(Down, kind, self.broadcast, self.local, self.aggregate),)

    def broadcast(self, s: Server) -> Down:
        step, beta = self.pace(s.t, s.R)
        steps = (rounded(s.h * step / self.sys.K * r) for r in self.lengths(s.theta0))
        return Down(s.x, tuple(steps), rounded(beta))  # 7

    def for_steps(self, down: Down | OpeningDown, K_i: int) -> Down | OpeningDown:
        """The download for a client of K_i steps, which are K / K_i times as long."""
        if isinstance(down, OpeningDown):
            return down
        return down._replace(steps=tuple(self.sys.K / K_i * step for step in down.steps))

    def local(
        self, client: Client | CompressingClient, down: Down, F: Oracle
    ) -> tuple[Client | CompressingClient, Up | CompressedUp]:
        c_i, m_i, (x, steps, beta), K = client[0], client[-1], down, self.sys.K
        D, m_new, rest = 0 * m_i, 0 * m_i, (1 - beta) * m_i  # x_i = x - steps D
        for _ in range(K):
            grad = F.grad(descend(x, D, steps, self.tensors), F.draw())
            m_k = rest.add(grad, alpha=beta)  # 3
            add_directions(D, m_k, self.tensors)
            m_new.add_(m_k, alpha=1 / K)  # 4
        if self.C is None:
            return Client(m_new), Up(m_new - c_i)
        d = self.C(m_new - c_i, F.rng)
        return CompressingClient(c_i + d.dense(), m_new), CompressedUp(d)

    def aggregate(self, s: Server, replies: Replies) -> Server:
        N, S, tensors, r = self.sys.N, len(replies), self.tensors, self.lengths(s.theta0)
        d = mean(r.up.d if self.C is None else r.up.d.dense() for r in replies)
        late = sum(r.tau for r in replies) / S
        g = d + s.c
        e = gain(g, r, tensors)
        E = max(s.E, e)
        h = min(1.0, 1e4 * e / E) if E > 0 else 1.0
        step = h * self.pace(s.t, s.R).step / (1 + late) ** 0.5
        P = polar_directions if self.geometry == "polar" else directions
        x = descend(s.x, P(g, tensors), tuple(step * r_l for r_l in r), tensors)  # 5
        D, L, Q = distance(x, s.theta0, r, tensors), s.L + step, s.Q + step * step
        return Server(
            theta=s.theta + 9 / (s.t + 9) * (x - s.theta) if self.average == "on" else x,  # 6
            x=x,
            theta0=s.theta0,
            c=s.c + S / N * d,  # 5
            t=s.t + 1,
            R=max(s.R, D if self.reach == "distance" else 8 * (D * D - Q) / L),
            L=L,
            Q=Q,
            E=E,
            h=h,
        )
