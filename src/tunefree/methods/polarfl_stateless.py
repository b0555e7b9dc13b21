"""PolarFL without memory on the clients: a vector of norm at most 1 goes up, ready for noise.

Our own; see the card. It is PolarFL with momentum on the server in place of the clients'.

    r_l, N, P, a_t and b_t                 as in PolarFL
    w_l^2 = sqrt(n_l) / Σ_j sqrt(n_j)      of tensor l with n_l numbers: the weights for which noise
                                           on the upload does the least harm; Σ_l w_l^2 = 1
    D = (Σ_l sqrt(n_l))^2 / L              the mean of n_l / w_l^2 over the L tensors
    M = 1 / (1 / (S K) + σ^2 D / S^2)      how many gradients a round is worth under noise of
                                           standard deviation σ on the sum; S K without
    γ_t = M_10^(1/4) / (t + 10)^(3/4), M_10 as M with min(K, 10) for K
    λ_t = max(1, sqrt(K / 10)) M^(1/4) / (t + 10)^(3/4), β_t = min(1, sqrt(M / (t + 10)))
    e_t = Σ_l r_l ||m^t_l||, h_t = min(1, 10^4 e_t / max over s <= t of e_s), h_{-1} = 1

     1  require θ^0; m = 0; x = θ = θ^0
     2  sample S clients; each starts at x_i = x
     3      K times: x_i = x_i - (h_{t-1} a_t λ_t / K) r N(∇F(x_i; ξ))
     4      upload u_i = C(w N(the mean of these K gradients))                       ||u_i|| <= 1
     5  v = mean of the u_i, divided by w tensor by tensor;
        m = (1 - β_t) m + β_t v, in the first round m = v;  x = x - b_t h_t a_t γ_t r P(m)
     6  θ = θ + 9/(t + 9) (x - θ)                       the model that is evaluated and handed out
     7  download x and the steps (h_{t-1} a_t λ_t / K) r_l of all tensors

With local epochs client i makes K_i steps of (h_{t-1} a_t λ_t / K_i) r, as in PolarFL. Under
privacy the mean of line 5 is the noisy sum over the expected number of clients, which is S. Where
records are protected, with noise σ on sums over B of them, it is σ sqrt(S / K) / B in M.

For studies: average `off` hands out x.

Wire: d and a number for each tensor down; d up, or C(d). Memory: none. Tuning: none. The constants
are part of the method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, prod, sqrt
from typing import ClassVar, Literal, NamedTuple

from tunefree.core import (
    About,
    Exchange,
    Method,
    NoState,
    Numbers,
    Oracle,
    Reply,
    Shapes,
    Vec,
    mean,
)
from tunefree.geometry import (
    add_directions,
    descend,
    directions,
    polar_directions,
    scaled,
    tensor_weights,
    units,
)
from tunefree.methods.polarfl import Pace, PolarFL, travel
from tunefree.wire import Compressed, Compressor, demand, rounded


class Server(NamedTuple):
    theta: Vec
    x: Vec
    theta0: Vec
    m: Vec
    t: int = 0
    R: float = 0.0
    L: float = 0.0
    Q: float = 0.0
    E: float = 0.0  # the largest e so far
    h: float = 1.0


class Down(NamedTuple):
    x: Vec
    steps: Numbers


class Up(NamedTuple):
    u: Vec


class CompressedUp(NamedTuple):
    u: Compressed


@dataclass(frozen=True)
class PolarFLStateless(Method):
    C: Compressor | None = None
    average: Literal["on", "off"] = "on"
    sigma: float = field(default=0.0, kw_only=True, repr=False)  # by the engine; 0 without privacy

    about: ClassVar[About] = About(
        title="PolarFL, stateless",
        family="polar steps in own units, unit uploads, averaged",
        paper="tunefree, 2026",
        steps=PolarFL.about.steps,
        bounds={"u": 1},
        weights="mean",
    )

    def __post_init__(self) -> None:
        if self.C is not None:
            demand(self.C, "contractive", self.about.title)

    @property
    def tensors(self) -> Shapes:
        return self.shapes

    def roots(self, theta0: Vec) -> Numbers:
        """sqrt(n_l) of all tensors."""
        return tuple(sqrt(prod(shape)) for shape in self.shapes or (tuple(theta0.shape),))

    def weights(self, theta0: Vec) -> Numbers:
        return tensor_weights(self.shapes or (tuple(theta0.shape),))

    def worth(self, theta0: Vec, most: float = inf) -> float:
        """M, counting at most so many local steps."""
        (_, S, K, _), roots = self.sys, self.roots(theta0)
        D = sum(roots) * sum(roots) / len(roots)
        return 1 / (1 / (S * min(K, most)) + self.sigma * self.sigma * D / (S * S))

    def pace(self, s: Server) -> Pace:
        a, K, t = min(1.0, max(0.1, s.R)), self.sys.K, s.t
        M, M_10 = self.worth(s.theta0), self.worth(s.theta0, most=10)
        path = max(1.0, sqrt(K / 10)) * M**0.25 / (t + 10) ** 0.75
        return Pace(a * M_10**0.25 / (t + 10) ** 0.75, a * path, min(1.0, sqrt(M / (t + 10))))

    def server(self, theta0: Vec) -> Server:
        return Server(theta0, theta0, theta0, m=0 * theta0)  # 1

    def round(self) -> tuple[Exchange, ...]:
        kind = Up if self.C is None else CompressedUp
        return (Exchange(Down, kind, self.broadcast, self.local, self.aggregate),)

    def broadcast(self, s: Server) -> Down:
        step = s.h * self.pace(s).path / self.sys.K
        return Down(s.x, tuple(rounded(step * r) for r in units(s.theta0, self.shapes)))  # 7

    def for_steps(self, down: Down, K_i: int) -> Down:
        return down._replace(steps=tuple(self.sys.K / K_i * step for step in down.steps))

    def local(self, client: NoState, down: Down, F: Oracle) -> tuple[NoState, Up | CompressedUp]:
        (x, steps), K = down, self.sys.K
        D, g = 0 * x, 0 * x  # x_i = x - steps D
        for _ in range(K):
            grad = F.grad(descend(x, D, steps, self.shapes), F.draw())  # 3
            add_directions(D, grad, self.shapes)
            g.add_(grad, alpha=1 / K)
        u = scaled(directions(g, self.shapes), self.weights(x), self.shapes)  # 4
        return client, Up(u) if self.C is None else CompressedUp(self.C(u, F.rng))

    def aggregate(self, s: Server, replies: Sequence[Reply]) -> Server:
        r, w = units(s.theta0, self.shapes), self.weights(s.theta0)
        u = mean(r.up.u if self.C is None else r.up.u.dense() for r in replies)
        v = scaled(u, tuple(1 / w_l for w_l in w), self.shapes)  # 5
        beta = self.pace(s).beta if s.t else 1.0
        m = (1 - beta) * s.m + beta * v
        late = sum(r.tau for r in replies) / len(replies)
        step = self.pace(s).step / sqrt(1 + late)
        after: Server = travel(s, m, step, r, self.shapes, polar_directions)
        return after._replace(m=m, theta=after.theta if self.average == "on" else after.x)
