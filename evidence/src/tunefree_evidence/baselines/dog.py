"""Local DoG, server DoG: steps as long as the distance over the gradients; nothing to tune.

Ivgi, Hinder, Carmon, "DoG is SGD's best friend: a parameter-free dynamic step size schedule", ICML
2023, on the clients of FedAvg or on a server (lines numbered by us; ε = 1e-8).

     1  require x = θ = θ^0
     2  sample S clients; each starts at θ_i = x; at its first time also x_0 = x, G = ε and
        r = r_ε (1 + ||x_0||), which it keeps from then on
     3      r = max(r, ||θ_i - x_0||);  G = G + ||∇F(θ_i; ξ)||^2
     4      θ_i = θ_i - r ∇F(θ_i; ξ) / sqrt(G)                       K times
     5      upload Δ_i = x - θ_i
     6  x = x - mean_i Δ_i
     7  θ = θ + 9/(t + 9) (x - θ)                                    in round t = 0, 1, ...
     8  download x
Server DoG has lines 3 and 4 on the server, for x_0 = θ^0 and the gradient mean_i g_i:
     5'     upload g_i = (1/K) Σ_k ∇F(x; ξ_k)

Wire: d down, d up. Memory: local x_0, r and G; server none. Tuning: none; r_ε = 1e-6 as published.
Deviations: our combinations; no paper has them. Line 7 is the average the authors hand out (γ = 8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tunefree.core import (
    OPEN,
    About,
    Exchange,
    Message,
    Method,
    NoState,
    Oracle,
    Replies,
    Step,
    Vec,
    mean,
    norm,
)
from tunefree.core import Server as State
from tunefree.methods.local_sgd import Model
from tunefree_evidence.baselines.local_optimizer import LocalOptimizer

PAPER, STEPS = "Ivgi, Hinder, Carmon, ICML 2023", {"r_eps": Step("1e-6", lambda: 1e-6)}


class DoG(NamedTuple):
    x_0: Vec
    r: float = 0.0  # before the first time
    G: float = 1e-8


class Averaging(NamedTuple):
    theta: Vec
    x: Vec
    t: int = 0


class Server(NamedTuple):
    theta: Vec
    x: Vec
    t: int
    x_0: Vec
    r: float
    G: float


class Up(NamedTuple):
    grad: Vec


def started(x: Vec, r_eps: float) -> DoG:
    return DoG(x, r_eps * (1 + float(norm(x))))  # 2


def dog(state: DoG, x: Vec, grad: Vec) -> tuple[DoG, Vec]:
    """The estimate after one gradient, and the step from x."""
    r, G = max(state.r, float(norm(x - state.x_0))), state.G + float(norm(grad)) ** 2  # 3
    return DoG(state.x_0, r, G), r / G**0.5 * grad  # 4


def averaged(s: State, step: Vec) -> Averaging:
    x = s.x - step  # 6
    return Averaging(s.theta + 9 / (s.t + 9) * (x - s.theta), x, s.t + 1)  # 7


@dataclass(frozen=True)
class LocalDoG(LocalOptimizer):  # 5
    r_eps: float = OPEN

    about: ClassVar[About] = About(
        "Local DoG",
        "averaging, steps from distance",
        PAPER,
        STEPS,
        weights="mean",
        steady=False,
    )

    def server(self, theta0: Vec) -> State:
        return Averaging(theta0, theta0)  # 1

    def client(self, theta0: Vec) -> DoG:
        return DoG(x_0=0 * theta0)

    def broadcast(self, s: State) -> Model:
        return Model(s.x)  # 8

    def begin(self, client: DoG, down: Message) -> DoG:
        return client if client.r else started(down.theta, self.r_eps)  # 2

    def step(self, run: DoG, theta_i: Vec, grad: Vec) -> tuple[DoG, Vec]:
        return dog(run, theta_i, grad)

    def aggregate(self, s: State, replies: Replies) -> State:
        return averaged(s, mean(r.up.delta for r in replies))


@dataclass(frozen=True)
class ServerDoG(Method):
    r_eps: float = OPEN

    about: ClassVar[About] = About(
        "Server DoG",
        "averaging, steps from distance",
        PAPER,
        STEPS,
        weights="mean",
        steady=False,
    )

    def server(self, theta0: Vec) -> Server:
        return Server(*Averaging(theta0, theta0), *started(theta0, self.r_eps))  # 1

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(Model, Up, lambda s: Model(s.x), self.local, self.aggregate),)  # 8

    def local(self, client: NoState, down: Model, F: Oracle) -> tuple[NoState, Up]:
        return client, Up(F.mean_grad(down.theta, self.sys.K))  # 5'

    def aggregate(self, s: Server, replies: Replies) -> Server:
        state, step = dog(DoG(s.x_0, s.r, s.G), s.x, mean(r.up.grad for r in replies))  # 3, 4
        return Server(*averaged(s, step), *state)
