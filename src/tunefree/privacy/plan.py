"""The plan: what a budget buys, before anything is trained.

What counts is the noise on a round's mean against the signal, sqrt(D) sigma / S for S clients and
D = (sum of the roots of the tensors' sizes)^2 / (number of tensors), as in PolarFLStateless. One
round is then worth M = 1 / (1 / (S K) + sigma^2 D / S^2) gradients, S K without noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from tunefree.core import System
from tunefree.errors import ConfigError
from tunefree.privacy.accountant import ROUGH
from tunefree.privacy.calls import Calls
from tunefree.privacy.coins import turns
from tunefree.privacy.promise import Privacy
from tunefree.privacy.records import of_calls

SHARES = (0.02, 0.05, 0.1, 0.2, 1.0)  # of the clients, in a round
ROUNDS = (50, 100, 200, 400)
NEARLY = 0.8  # of the most that a budget buys


class Row(NamedTuple):
    """One cohort, one number of rounds.

    Attributes:
        sigma: The noise's standard deviation, in units of the largest upload.
        noise: On the mean of a round, against the signal.
        worth: Gradients that all rounds are worth together.
        bits: Sent by all clients over all rounds, in both directions.
        needed: Clients with which the noise would be as long as the signal, at this share.
    """

    per_round: int
    rounds: int
    sigma: float
    noise: float
    worth: float
    bits: int
    needed: int


class RecordRow(NamedTuple):
    """One batch size, one number of rounds, where records are protected.

    Attributes:
        batch_size: Records in a batch.
        sigma: The noise's standard deviation, in units of the largest gradient.
        noise: On a client's upload, the mean of K gradients, against the signal.
        worth: Gradients without noise that all rounds of all clients are worth together.
        bits: Sent by all clients over all rounds, in both directions.
    """

    batch_size: int
    rounds: int
    sigma: float
    noise: float
    worth: float
    bits: int


def dimension(sizes: Sequence[int]) -> float:
    """D of a model whose tensors have so many numbers: at most all of them.

    >>> dimension([100, 100]), dimension([400])
    (200.0, 400.0)
    """
    some = [n for n in sizes if n]
    return sum(math.sqrt(n) for n in some) ** 2 / len(some) if some else 0.0


def worth(sigma: float, D: float, sys: System) -> float:
    """M, the gradients that a round is worth.

    >>> worth(0.0, 100.0, System(N=100, S=10, K=3, T=1))
    30.0
    """
    return 1 / (1 / (sys.S * sys.K) + sigma**2 * D / sys.S**2)


def plan(
    privacy: Privacy,
    sizes: Sequence[int],
    clients: int,
    local_steps: int = 10,
    per_round: Iterable[int] = (),
    rounds: Iterable[int] = ROUNDS,
) -> list[Row]:
    """What this promise comes to; refused if even the mean of all rounds would be mostly noise."""
    cohorts = sorted(set(per_round) or {max(1, round(share * clients)) for share in SHARES})
    if clients < 1 or not all(1 <= S <= clients for S in cohorts):
        raise ConfigError(f"a round has from 1 to all {clients} clients", "change {per_round}")
    D = dimension(sizes)
    rows = []
    for S in cohorts:
        for T in sorted(set(rounds)):
            sys = System(clients, S, local_steps, T)
            sigma = privacy.in_a(sys, ROUGH).release.sigma
            noise = math.sqrt(D) * sigma / S
            bits = 2 * 32 * sum(sizes) * S * T
            needed = math.ceil(math.sqrt(D) * sigma * clients / S)
            rows.append(Row(S, T, sigma, noise, T * worth(sigma, D, sys), bits, needed))
    if all(row.noise > math.sqrt(row.rounds) for row in rows):
        best = min(rows, key=lambda row: row.noise / math.sqrt(row.rounds))
        raise ConfigError(
            f"{clients} clients cannot hide a whole client each at epsilon = {privacy.epsilon:g}: "
            f"with {best.per_round} in each of {best.rounds} rounds the noise on their mean is "
            f"{best.sigma / best.per_round:.2g} of a whole contribution and {best.noise:.2g} times "
            f"the signal, which {best.rounds} rounds cannot average out",
            f"protect records instead of clients (unit = 'record'), find about {best.needed:,} "
            "clients, or train a smaller model",
        )
    return rows


def plan_records(
    privacy: Privacy,
    sizes: Sequence[int],
    sys: System,
    records: int,
    batches: Iterable[int] = (),
    rounds: Iterable[int] = ROUNDS,
) -> list[RecordRow]:
    """The same for clients with so many records each; refused if it would be mostly noise."""
    some = sorted(set(batches) or {max(1, round(share * records)) for share in SHARES})
    if not all(1 <= B <= records for B in some):
        raise ConfigError(f"a batch has from 1 to all {records} records", "change {batch_size}")
    D, each = dimension(sizes), (Calls((1,) * sys.K),)
    rows = []
    for B in some:
        for T in sorted(set(rounds)):
            limit = turns(T, sys.N, sys.S)
            sigma = of_calls(privacy, records, B, limit, each, grid=ROUGH).sigma
            on_gradient = D * (sigma / B) ** 2
            M = sys.S * sys.K / (1 + on_gradient)
            alone = math.sqrt(on_gradient / sys.K)
            rows.append(RecordRow(B, T, sigma, alone, T * M, 2 * 32 * sum(sizes) * sys.S * T))
    if all(row.noise > math.sqrt(sys.S * row.rounds) for row in rows):
        best = min(rows, key=lambda row: row.noise / math.sqrt(row.rounds))
        raise ConfigError(
            f"{records} records of a client cannot be hidden at epsilon = {privacy.epsilon:g}: at "
            f"best the noise on its upload is {best.noise:.2g} times the signal, which {sys.S} "
            f"clients and {best.rounds} rounds cannot average out",
            "find clients with more records, or train a smaller model",
        )
    return rows


R = TypeVar("R", Row, RecordRow)


def advised(rows: Sequence[R]) -> R:
    """The row with the least traffic of those that buy nearly the most."""
    most = max(row.worth for row in rows)
    return min((row for row in rows if row.worth >= NEARLY * most), key=lambda row: row.bits)
