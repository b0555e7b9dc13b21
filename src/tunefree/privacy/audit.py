"""The audit: an attack on the mechanism itself, which must not do better than epsilon allows.

A canary client uploads the largest vector there is; the attacker knows it, sees everything that is
released, and guesses from many runs whether the canary was a client. How often it is right or
wrong gives a lower bound on epsilon (Clopper and Pearson's intervals; the threshold is chosen on
other runs than it is judged on), at several deltas at once, since a promise holds at all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tunefree.core import Reply, System, Vec, stream
from tunefree.data.samples import Samples
from tunefree.models.objective import Objective
from tunefree.privacy.accountant import Gaussian, epsilon
from tunefree.privacy.coins import tossed
from tunefree.privacy.promise import Guarantee
from tunefree.privacy.records import PrivateOracle, RecordGuarantee
from tunefree.privacy.release import NoisyMean, Sum, simulated

DOUBT = 0.05  # the chance that the audit accuses a mechanism that keeps its promise
DELTAS = (1e-2, 0.1)  # beside the promise's own
Floats: TypeAlias = NDArray[np.float64]


class Seen(NamedTuple):
    """What a round shows to everybody: the noisy mean, and whatever else is reported."""

    mean: Vec
    metrics: Mapping[str, float] = {}


# The uploads of other clients, whether the canary is a client, the run's seed -> what is seen
Mechanism: TypeAlias = Callable[[float, bool, int], Iterator[Seen]]


class Finding(NamedTuple):
    """What the attack proves at one delta.

    Attributes:
        claimed: The epsilon that the accountant gives.
        proved: The epsilon is at least this, but for one audit in twenty.
        by: From what the attacker saw.
    """

    delta: float
    claimed: float
    proved: float
    by: str

    @property
    def holds(self) -> bool:
        return self.proved <= self.claimed


class Up(NamedTuple):
    u: Vec


def ours(
    sys: System, guarantee: Guarantee, sums: Callable[[int, float], Sum] = simulated
) -> Mechanism:
    """Rounds as a run has them: coins, the release, the noise. The canary is the last client."""
    sigma, q = guarantee.release
    like = torch.zeros(1)

    def run(others: float, canary: bool, seed: int) -> Iterator[Seen]:
        mean = NoisyMean(sums(seed, sigma), sigma, sys.S, bound=1.0)
        ups = [Up(like + others)] * (sys.N - 1) + [Up(like + 1)]
        for t in range(sys.T):
            cohort = tossed(seed, t, sys.N, q)
            came = [Reply(i, 1, 0, ups[i]) for i in cohort if canary or i < sys.N - 1]
            yield Seen(mean(t, Up, came, like).up.u)

    return run


def of_records(promise: RecordGuarantee) -> Mechanism:
    """Gradients of a client's oracle, one a round. The canary is the last of its records, and the
    gradient of each is its target."""
    objective = Objective(nn.Linear(1, 1, bias=False), times_target, stochastic=False)
    n, theta = round(promise.records), torch.ones(1)

    def run(others: float, canary: bool, seed: int) -> Iterator[Seen]:
        y = torch.full((n,), others)
        y[-1] = 1.0
        samples, part = Samples(torch.ones(n, 1), y), np.arange(n - 1 + canary)
        for t in range(promise.limit):
            rng = stream(seed, "client", t)
            F = PrivateOracle(objective, samples, part, rng, promise, promise.round[0])
            yield Seen(F.grad(theta, F.draw()))

    return run


def times_target(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (outputs[:, 0] * y).mean()


def audit_records(promise: RecordGuarantee, runs: int = 1000, seed: int = 0) -> list[Finding]:
    """The same attack on the records of one client: they take the place of clients."""
    n, T = round(promise.records), promise.limit
    release = Gaussian(promise.sigma, promise.q)
    as_clients = Guarantee(promise.epsilon, promise.delta, release, T)
    sys = System(n, round(promise.batch), 1, T)
    return audit(of_records(promise), sys, as_clients, runs, seed)


def audit(
    mechanism: Mechanism, sys: System, guarantee: Guarantee, runs: int = 1000, seed: int = 0
) -> list[Finding]:
    """The most that is proved at each delta, with other clients that send nothing, and with others
    that send the opposite of the canary."""
    numbers: dict[str, tuple[Floats, Floats]] = {}
    for others, against in ((0.0, "silent others"), (-1.0, "opposing others")):
        sides = [
            [scores(mechanism(others, canary, 2 * (seed + i) + canary), sys, guarantee, others)
             for i in range(runs)]
            for canary in (False, True)
        ]  # fmt: skip
        for what in sides[0][0]:
            out, inside = (np.array([each[what] for each in side]) for side in sides)
            numbers[f"{what}, {against}"] = out, inside
    found = []
    for delta in (guarantee.delta, *DELTAS):
        doubt = DOUBT / (len(numbers) * (1 + len(DELTAS)))
        proofs = {what: lower_bound(*both, delta, doubt) for what, both in numbers.items()}
        by = max(proofs, key=lambda what: proofs[what])
        claimed = epsilon({guarantee.release: guarantee.limit}, delta)
        found.append(Finding(delta, claimed, proofs[by], by))
    return found


def scores(
    seen: Iterator[Seen], sys: System, guarantee: Guarantee, others: float
) -> dict[str, float]:
    """A run in a few numbers: how likely the canary makes the means, and the sum of each metric."""
    sigma, q = guarantee.release
    total: dict[str, float] = {"means": 0.0}
    for mean, metrics in seen:
        x = float(mean[0]) * sys.S - others * q * (sys.N - 1)
        total["means"] += float(np.logaddexp(math.log1p(-q) if q < 1 else -math.inf,
                                             math.log(q) + (x - 0.5) / sigma**2))  # fmt: skip
        for name, value in metrics.items():
            total[name] = total.get(name, 0.0) + value
    return total


def lower_bound(out: Floats, inside: Floats, delta: float, doubt: float) -> float:
    """The epsilon proved by the best threshold, above it or below it, with so much doubt.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> lower_bound(rng.normal(0, 1, 4000), rng.normal(0, 1, 4000), 1e-5, 0.05)
    0.0
    """
    middle = len(out) // 4
    sides = [(o, i) for o, i in ((out, inside), (-out, -inside), (inside, out), (-inside, -out))]
    guesses = []
    for low, high in sides:
        cuts = np.unique(np.quantile(low[:middle], np.linspace(0, 1, 200)))
        rates = [((high[:middle] > c).mean(), (low[:middle] > c).mean()) for c in cuts]
        values = [ratio(yes - delta, no + 1 / middle) for yes, no in rates]
        best = int(np.argmax(values))
        guesses.append((values[best], cuts[best], low[middle:], high[middle:]))
    _, cut, low, high = max(guesses, key=lambda guess: guess[0])
    yes = least_rate(int((high > cut).sum()), len(high), doubt / 2)
    no = 1 - least_rate(int((low <= cut).sum()), len(low), doubt / 2)
    return max(0.0, ratio(yes - delta, no))


def ratio(yes: float, no: float) -> float:
    return math.log(yes / no) if yes > 0 else -math.inf


def least_rate(hits: int, of: int, doubt: float) -> float:
    """The lower end of Clopper and Pearson's interval.

    >>> round(least_rate(100, 100, 0.05), 4)  # the hundredth root of 0.05
    0.9705
    """
    from scipy.special import betaincinv  # with scikit-learn

    return float(betaincinv(hits, of - hits + 1, doubt)) if hits else 0.0
