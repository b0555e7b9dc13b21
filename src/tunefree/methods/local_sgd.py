"""Local SGD: a round of FedAvg's clients, for methods that change only what the server does.

     1  each sampled client starts at θ_i = θ
     2      θ_i = θ_i - η ∇F(θ_i; ξ)                                 K times
     3      upload Δ_i = θ - θ_i

Wire: d down, d up. Memory: none. Rounds are those of `fedavg.py`, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tunefree.core import Exchange, Oracle, Reply, Server, System, Vec


class Client(NamedTuple):
    pass


class Down(NamedTuple):
    theta: Vec


class Up(NamedTuple):
    delta: Vec


def local_sgd(
    sys: System, eta: float, up: Callable[[Server, Sequence[Reply]], Server]
) -> tuple[Exchange, ...]:
    """A round of one exchange; `up` is what the server does with the Δ_i."""

    def local(client: Client, down: Down, F: Oracle) -> tuple[Client, Up]:
        D = 0 * down.theta  # θ_i = θ - η D
        for _ in range(sys.K):
            D = D + F.grad(down.theta - eta * D, F.draw())  # 2
        return client, Up(delta=eta * D)  # 3

    return (Exchange(Down, Up, lambda s: Down(s.theta), local, up),)
