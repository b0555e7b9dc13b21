"""What makes a deployed run private: who is asked, the noise, and the ledger in its run file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tunefree.core import Algorithm, Generator, Vec
from tunefree.privacy.clipping import FIRST
from tunefree.privacy.coins import tossed
from tunefree.privacy.ledger import Ledger
from tunefree.privacy.promise import Guarantee
from tunefree.privacy.records import RecordGuarantee
from tunefree.privacy.release import Floats, NoisyMean, bound_of, deployed, key_of
from tunefree.record import Record


class Private:
    """The promise of a run, kept: every round is entered before the server's method sees its sum.

    A server that was killed after that finds the sum again and asks nobody; one that was killed
    before has released nothing, and draws the round's noise anew.
    """

    def __init__(
        self, record: Record, guarantee: Guarantee, algo: Algorithm, clip: float | None
    ) -> None:
        """`algo` is the method for as few clients as the run may start with."""
        self.guarantee, self._record, self._sys = guarantee, record, algo.sys
        self._bound, self._cuts = bound_of(algo, clip), bound_of(algo, None) is None
        self._ledger = Ledger(record.connection, guarantee.epsilon, guarantee.delta)
        self._mean = self.start({})

    @property
    def ledger(self) -> Ledger:
        """The ledger, while nothing else is being written into the run file."""
        self._record.settle()
        return self._ledger

    @property
    def threshold(self) -> float:
        """The norm at which clients cut what they send; 0 if the method bounds it."""
        return self._mean.threshold if self._cuts else 0.0

    def start(self, last: Mapping[str, float]) -> NoisyMean:
        """The release of the rounds after the last row."""
        release = self.guarantee.release

        def total(t: int, vectors: Sequence[Vec], size: int, clients: Sequence[int]) -> Floats:
            return deployed(self.ledger, release)(t, vectors, size, clients)

        def spent(rounds: int, due: bool) -> Mapping[str, float]:
            return {"epsilon": self.ledger.spent()}

        threshold = last.get("clip", FIRST)
        self._mean = NoisyMean(total, release.sigma, self._sys.S, self._bound, threshold, spent)
        return self._mean

    def released(self, t: int) -> bool:
        """Whether the sum of this round has left, or may have."""
        return self.ledger.has(key_of(t))

    def cohort(self, t: int, N: int, there: Collection[int], rng: Generator) -> list[int]:
        """Whose coins fell, there or not; without coins S of those that are there and have the
        most participations left."""
        ledger, release = self.ledger, self.guarantee.release
        if release.q < 1:
            return tossed(ledger.secret(), t, N, release.q)
        left = ledger.left(range(N), release)
        able = [client for client in rng.permutation(N) if client in there and left[client]]
        return sorted(sorted(map(int, able), key=lambda client: -left[client])[: self._sys.S])


def left_over(record: Record) -> dict[str, Any]:
    """What a run file says is spent, and what is left; for everybody, and for each client."""
    facts = record.facts()
    if facts.privacy["unit"] == "record":  # each node has a ledger of its own
        promise = RecordGuarantee.stored(facts.privacy)
        done = record.last()
        spent = promise.after_rounds(0 if done is None else done[0] + 1)
        left = max(0.0, promise.epsilon - spent)
        return {"epsilon": promise.epsilon, "delta": promise.delta, "spent": spent, "left": left}
    guarantee = Guarantee.stored(facts.privacy)
    ledger = Ledger(record.connection, guarantee.epsilon, guarantee.delta)
    spent, budget = ledger.spent(), guarantee.epsilon
    found: dict[str, Any] = {"epsilon": budget, "delta": guarantee.delta, "spent": spent}
    found["left"] = max(0.0, budget - spent)
    if guarantee.release.q == 1:
        clients = range(len(facts.names))
        found["participations_left"] = ledger.left(clients, guarantee.release)
    return found
