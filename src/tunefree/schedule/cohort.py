"""Who takes part in a server step."""

from __future__ import annotations

from tunefree.core import System, stream


def cohort(seed: int, t: int, sys: System) -> list[int]:
    """S distinct clients, uniform and fresh at every step, in client order.

    >>> cohort(seed=0, t=0, sys=System(N=3, S=3, K=1, T=1))
    [0, 1, 2]
    """
    chosen = stream(seed, "cohort", t).choice(sys.N, sys.S, replace=False)
    return sorted(chosen.tolist())
