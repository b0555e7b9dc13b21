"""What makes a deployed run private: who is asked, the noise, and the ledger in its run file."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefree.core import Algorithm, Generator, Vec
from tunefree.privacy.clipping import FIRST
from tunefree.privacy.coins import tossed
from tunefree.privacy.ledger import Ledger
from tunefree.privacy.noise import BITS
from tunefree.privacy.promise import Guarantee
from tunefree.privacy.records import RecordGuarantee
from tunefree.privacy.release import Floats, NoisyMean, Summed, bound_of, deployed, key_of
from tunefree.record import Record
from tunefree.secure.messages import Terms

LOUDEST = 256  # the largest noise, in bounds: an integer is then at most 2^-12 bounds


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
        self.bound, self._cuts = bound_of(algo, clip), bound_of(algo, None) is None
        self._sum: Summed | None = None
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
            summed, self._sum = self._sum, None
            return deployed(self.ledger, release, summed=summed)(t, vectors, size, clients)

        def spent(rounds: int, due: bool) -> Mapping[str, float]:
            return {"epsilon": self.ledger.spent()}

        threshold = last.get("clip", FIRST)
        self._mean = NoisyMean(total, release.sigma, self._sys.S, self.bound, threshold, spent)
        return self._mean

    def terms(self, terms: Terms) -> Terms:
        """Those of a secure sum whose integers fit the noise's grid."""
        return fitting(terms, self.guarantee.release.sigma)

    def take(self, words: NDArray[np.uint32], terms: Terms) -> None:
        """What a secure sum has given, for the release that follows."""
        unit = self.guarantee.release.sigma * 2 ** (31 - BITS)
        self._sum = Summed(words.view(np.int32), round(room(terms) / unit))

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


def room(terms: Terms) -> float:
    """How many bounds the 2^31 integers of a sum stand for."""
    return terms.clients + 12 * terms.noise


def fitting(terms: Terms, sigma: float) -> Terms:
    """These terms with room for noise of sigma bounds too, an integer a whole number of its steps.

    The grid of the noise has 2^BITS steps to a sigma.
    """
    unit = sigma * 2 ** (31 - BITS)  # bounds, if an integer is one step
    steps = math.ceil((terms.clients + 12 * sigma) / unit)
    return terms._replace(noise=(steps * unit - terms.clients) / 12)


def fits(terms: Terms, plain: Terms) -> bool:
    """Whether a node takes part at this scale: that of a sum without noise, or hardly coarser."""
    most = max(3.0 * plain.clients, LOUDEST * 2.0 ** (31 - BITS))
    return terms.noise >= 0 and room(terms) <= most and terms._replace(noise=0.0) == plain


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
