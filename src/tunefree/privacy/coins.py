"""Who takes part in a round: decided by secret coins, or in turn so that nobody comes too often."""

from __future__ import annotations

from tunefree.core import stream
from tunefree.schedule.membership import Everybody


def tossed(secret: int, t: int, N: int, q: float) -> list[int]:
    """The clients whose coin of probability q fell in round t, in client order.

    >>> tossed(secret=1, t=0, N=4, q=1.0)
    [0, 1, 2, 3]
    """
    return [int(client) for client in (stream(secret, "coins", t).random(N) < q).nonzero()[0]]


class Coins(Everybody):
    """A simulation's clients: each takes part with probability S / N, whatever others do.

    Nobody may know the coins: the saving in noise rests on that. A simulation takes them from its
    seed, and so promises nothing to those who know it.
    """

    def cohort(self, t: int) -> list[int]:
        N, S, _, _ = self.algo.sys
        return tossed(self.seed, t, N, S / N)


class Turns(Everybody):
    """A simulation's clients: S of them in a round, nobody again before (almost) all had a turn."""

    def cohort(self, t: int) -> list[int]:
        N, S, _, _ = self.algo.sys
        turn, place = divmod(t, N // S)
        order = stream(self.seed, "turn", turn).permutation(N)
        return sorted(order[place * S : (place + 1) * S].tolist())


def turns(rounds: int, N: int, S: int) -> int:
    """How often a client has taken part after so many rounds in turn, at most.

    >>> turns(rounds=4, N=10, S=3), turns(rounds=3, N=10, S=3)
    (2, 1)
    """
    return -(-rounds // (N // S))
