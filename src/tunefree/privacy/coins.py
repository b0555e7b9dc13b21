"""Who takes part in a round, decided by a coin for each client from a secret seed."""

from __future__ import annotations

from tunefree.core import Algorithm, stream
from tunefree.schedule.membership import Everybody


class Coins(Everybody):
    """A simulation's clients: each takes part with probability S / N, whatever others do.

    Nobody may know the coins: the saving in noise rests on that. A deployment draws its secret
    from the system's entropy and keeps it in its run file.
    """

    def __init__(self, algo: Algorithm, secret: int) -> None:
        super().__init__(algo, secret)

    def cohort(self, t: int) -> list[int]:
        N, S, _, _ = self.algo.sys
        return [int(i) for i in (stream(self._seed, "coins", t).random(N) < S / N).nonzero()[0]]
