"""PolarFL: ParFreFL's skeleton in the model's own units; nothing to tune, not even the rounds.

Our own; see the card for its origin and for which parts are proved.

    r_l = ||θ^0_l||                        the unit of tensor l; of one that starts at zero, the
                                           others' median length for its size
    N(u)_l = u_l / ||u_l||                 tensor by tensor
    P(u)_l = O_l / ||O_l||                 O_l the polar factor of matrix l; vectors as N
    γ_t = (S min(K, 10))^(1/4) / (t + 10)^(3/4)             the server's step
    λ_t = max(1, sqrt(K / 10)) (S K)^(1/4) / (t + 10)^(3/4)     a client's path: longer, if K > 10
    β_t = min(1, sqrt(S K / (t + 10)))
    D_t = sqrt(mean over l of (||x^t_l - θ^0_l|| / r_l)^2)          how far x has come
    L_t = Σ_{s<t} b_s h_s a_s γ_s,  Q_t = Σ_{s<t} (b_s h_s a_s γ_s)^2     how far it went; what
                                           D_t^2 would be about if it had gone at random
    R_t = max over 0 < s <= t of 8 (D_s^2 - Q_s) / L_s, at least 0
    a_t = min(1, max(0.1, R_t))            reach is earned on straight paths
    e_t = Σ_l r_l ||g^t_l||                what a step of every tensor's unit would gain
    h_t = min(1, 10^4 e_t / max over s <= t of e_s), h_{-1} = 1     where nothing is left to gain,
                                           steps fade out: normalised noise would lead away
    f_t                                    the share of clients that were never heard of

     1  require θ^0; m_i = c_i = 0 for all i; c = g = 0; x = θ = θ^0
     2  sample S clients; each starts at x_i = x
     3      K times: m_i^k = (1 - β_t) m_i + β_t ∇F(x_i; ξ)      with 1 for β_t the first time
                     x_i = x_i - (h_{t-1} a_t λ_t / K) r N(m_i^k)
     4      m_i' = (1/K) Σ_k m_i^k;  upload d_i = C(m_i' - c_i), and whether it is the first time;
            c_i = c_i + d_i
     5  u_i = d_i; β_t (d_i - g) of a first time, with 1 for β_0
        g = c + f_t g + (1/S) Σ u_i        the last g stands for those that were never heard of
        x = x - b_t h_t a_t γ_t r P(g);  c = c + (1/N) Σ d_i
        b_t = 1 / sqrt(1 + τ_t), τ_t the mean age of the uploads in steps; 1 if none is late
     6  θ = θ + 9/(t + 9) (x - θ)                       the model that is evaluated and handed out
     7  download x, the steps (h_{t-1} a_t λ_t / K) r_l of all tensors, and β_t

As long as every client is new, g is momentum on the server; once all are known, it is c and the
mean change. With local epochs client i makes K_i steps of (h_{t-1} a_t λ_t / K_i) r, K_i stands in
line 4, and K in γ_t, λ_t and β_t is the mean of the K_i: all clients reach equally far.

Wire: d and a number for each tensor down; d, or C(d), and a number up. Memory: m_i, and whether it
is known; if compressed also c_i, which is m_i otherwise. Tuning: none. The constants are part of
the method. Options are ablations: geometry `sphere` takes the vector as one tensor, `tensor` uses N
on the server too; units `one` sets r_l = 1; average `off` hands out x; reach `distance` has
R_t = max over s <= t of D_s, and `off` sets a_t = 1; first_pass `on` is ParFreFL's line 1.
newcomers `whole` has u_i = d_i - g for a first time, which a sum of uploads tells: secure sums use
it, and it differs only where clients are new although β_t < 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from tunefree.core import (
    About,
    Exchange,
    Method,
    Numbers,
    OpeningDown,
    Oracle,
    Replies,
    Reply,
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
    g: Vec
    known: float = 0.0  # the mean of the clients', so 1 - f
    t: int = 0
    R: float = 0.0
    L: float = 0.0
    Q: float = 0.0
    E: float = 0.0  # the largest e so far
    h: float = 1.0


class Client(NamedTuple):
    c_i: Vec  # and m_i, which is the same
    known: float = 0.0  # 1 once an upload was accepted


class CompressingClient(NamedTuple):
    c_i: Vec
    m_i: Vec
    known: float = 0.0


class Down(NamedTuple):
    x: Vec
    steps: Numbers
    beta: float


class Up(NamedTuple):
    d: Vec
    first: float  # 1 the first time


class CompressedUp(NamedTuple):
    d: Compressed
    first: float


class Pace(NamedTuple):
    """What a round does: a_t γ_t, a_t λ_t, and β_t."""

    step: float
    path: float
    beta: float


def travel(
    s: Any, g: Vec, step: float, r: Numbers, tensors: Shapes, P: Callable[[Vec, Shapes], Vec]
) -> Any:
    """The server's state s after a step h_t `step` r along P(g): lines 5 and 6."""
    e = gain(g, r, tensors)
    E = max(s.E, e)
    h = min(1.0, 1e4 * e / E) if E > 0 else 1.0
    step = h * step
    x = descend(s.x, P(g, tensors), tuple(step * r_l for r_l in r), tensors)
    theta = s.theta + 9 / (s.t + 9) * (x - s.theta)
    D, L, Q = distance(x, s.theta0, r, tensors), s.L + step, s.Q + step * step
    R = max(s.R, 8 * (D * D - Q) / L)
    return s._replace(theta=theta, x=x, t=s.t + 1, R=R, L=L, Q=Q, E=E, h=h)


@dataclass(frozen=True)
class PolarFL(Method):
    C: Compressor | None = None
    geometry: Literal["polar", "tensor", "sphere"] = "polar"
    units: Literal["own", "one"] = "own"
    average: Literal["on", "off"] = "on"
    reach: Literal["straight", "distance", "off"] = "straight"
    first_pass: Literal["off", "on"] = "off"
    newcomers: Literal["damped", "whole"] = "damped"

    about: ClassVar[About] = About(
        title="PolarFL",
        family="polar steps in own units, local momentum, averaged",
        paper="tunefree, 2026",
        steps={
            "gamma": Step(
                "(S min(K, 10))^(1/4) / (t + 10)^(3/4)",
                lambda S, K, t: (S * min(K, 10)) ** 0.25 / (t + 10) ** 0.75,
            ),
            "path": Step(
                "max(1, sqrt(K / 10)) (S K)^(1/4) / (t + 10)^(3/4)",
                lambda S, K, t: max(1.0, (K / 10) ** 0.5) * (S * K) ** 0.25 / (t + 10) ** 0.75,
            ),
            "beta": Step(
                "min(1, sqrt(S K / (t + 10)))",
                lambda S, K, t: min(1.0, (S * K / (t + 10)) ** 0.5),
            ),
        },
        means={"c": "c_i", "known": "known"},
        sums={"newcomers": "whole"},
    )

    def __post_init__(self) -> None:
        if self.C is not None:
            demand(self.C, "contractive", self.about.title)

    def pace(self, t: int, R: float) -> Pace:
        a = 1.0 if self.reach == "off" else min(1.0, max(0.1, R))
        gamma, path, beta = (step.at(self.sys, t) for step in self.about.steps.values())
        return Pace(a * gamma, a * path, beta)

    @property
    def tensors(self) -> Shapes:
        return None if self.geometry == "sphere" else self.shapes

    def lengths(self, theta0: Vec) -> Numbers:
        r = units(theta0, self.tensors)
        return r if self.units == "own" else (1.0,) * len(r)

    def server(self, theta0: Vec) -> Server:
        return Server(theta0, theta0, theta0, c=0 * theta0, g=0 * theta0)  # 1

    def client(self, theta0: Vec) -> Client | CompressingClient:
        return Client(0 * theta0) if self.C is None else CompressingClient(0 * theta0, 0 * theta0)

    def remember(self, c_i: Vec, m_i: Vec) -> Client | CompressingClient:
        return Client(m_i, 1.0) if self.C is None else CompressingClient(c_i, m_i, 1.0)

    def opening(self) -> tuple[Exchange, ...]:
        if self.first_pass == "off":
            return ()
        first = gradient_opening(
            self.sys, lambda m: self.remember(m, m), lambda s, c: s._replace(c=c)
        )

        def up(s: Server, replies: Replies) -> Server:
            after: Server = first.up(s, replies)
            return after._replace(known=len(replies) / self.sys.N)

        return (first._replace(up=up),)

    def round(self) -> tuple[Exchange, ...]:
        kind = Up if self.C is None else CompressedUp
        return (Exchange(Down, kind, self.broadcast, self.local, self.aggregate),)

    def broadcast(self, s: Server) -> Down:
        _, path, beta = self.pace(s.t, s.R)
        steps = (rounded(s.h * path / self.sys.K * r) for r in self.lengths(s.theta0))
        return Down(s.x, tuple(steps), rounded(beta))  # 7

    def for_steps(self, down: Down | OpeningDown, K_i: int) -> Down | OpeningDown:
        """The download for a client of K_i steps, which are K / K_i times as long."""
        if isinstance(down, OpeningDown):
            return down
        return down._replace(steps=tuple(self.sys.K / K_i * step for step in down.steps))

    def local(
        self, client: Client | CompressingClient, down: Down, F: Oracle
    ) -> tuple[Client | CompressingClient, Up | CompressedUp]:
        (c_i, *_), (*_, m_i, known), (x, steps, beta), K = client, client, down, self.sys.K
        beta = beta if known else 1.0
        D, m_new, rest = 0 * m_i, 0 * m_i, (1 - beta) * m_i  # x_i = x - steps D
        for _ in range(K):
            grad = F.grad(descend(x, D, steps, self.tensors), F.draw())
            m_k = rest.add(grad, alpha=beta)  # 3
            add_directions(D, m_k, self.tensors)
            m_new.add_(m_k, alpha=1 / K)  # 4
        if self.C is None:
            return self.remember(m_new, m_new), Up(m_new - c_i, 1.0 - known)
        d = self.C(m_new - c_i, F.rng)
        return self.remember(c_i + d.dense(), m_new), CompressedUp(d, 1.0 - known)

    def aggregate(self, s: Server, replies: Replies) -> Server:
        N, S, tensors, r = self.sys.N, len(replies), self.tensors, self.lengths(s.theta0)
        pace = self.pace(s.t, s.R)
        d, late = mean(map(self.change, replies)), sum(r.tau for r in replies) / S
        new, first = [r for r in replies if r.up.first], sum(r.up.first for r in replies)
        beta = pace.beta if s.t and self.newcomers == "damped" else 1.0
        share, f = first / S, 1 - round(N * s.known) / N
        g = (d + s.c).add_(s.g, alpha=max(0.0, f) - beta * share)
        if new and beta < 1:
            g.sub_(mean(map(self.change, new)), alpha=(1 - beta) * share)
        P = polar_directions if self.geometry == "polar" else directions
        after: Server = travel(s, g, pace.step / (1 + late) ** 0.5, r, tensors, P)
        if self.reach == "distance":
            after = after._replace(R=max(s.R, distance(after.x, s.theta0, r, tensors)))
        if self.average == "off":
            after = after._replace(theta=after.x)
        return after._replace(c=s.c + S / N * d, g=g, known=s.known + first / N)

    def change(self, reply: Reply) -> Vec:
        d: Vec = reply.up.d if self.C is None else reply.up.d.dense()
        return d
