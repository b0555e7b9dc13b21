"""Who takes part in a round, decided by a coin for each client from a secret seed."""

from __future__ import annotations

from tunefree.core import Algorithm, stream
from tunefree.schedule.membership import Everybody


def tossed(secret: int, t: int, N: int, q: float) -> list[int]:
    """The clients whose coin of probability q fell in round t, in client order.

    >>> tossed(secret=1, t=0, N=4, q=1.0)
    [0, 1, 2, 3]
    """
    return [int(client) for client in (stream(secret, "coins", t).random(N) < q).nonzero()[0]]


class Coins(Everybody):
    """A simulation's clients: each takes part with probability S / N, whatever others do.

    Nobody may know the coins: the saving in noise rests on that. A deployment draws its secret
    from the system's entropy and keeps it in its run file.
    """

    def __init__(self, algo: Algorithm, secret: int) -> None:
        super().__init__(algo, secret)

    def cohort(self, t: int) -> list[int]:
        N, S, _, _ = self.algo.sys
        return tossed(self._seed, t, N, S / N)
