"""Who takes part in a server step."""

from __future__ import annotations

from collections.abc import Sequence

from tunefree.core import Generator, System, stream


def cohort(seed: int, t: int, sys: System) -> list[int]:
    """S distinct clients, uniform and fresh at every step, in client order.

    >>> cohort(seed=0, t=0, sys=System(N=3, S=3, K=1, T=1))
    [0, 1, 2]
    """
    return draw(stream(seed, "cohort", t), range(sys.N), sys.S)


def draw(rng: Generator, clients: Sequence[int], count: int) -> list[int]:
    """So many distinct ones of these clients, uniform, in client order."""
    return sorted(clients[place] for place in rng.choice(len(clients), count, replace=False))
