"""Record level: an oracle whose every answer is private, and so is all that is made of them.

Each record of every client is in a batch by a coin of its own, of probability q = B / records,
where `records` is a public number: the mean over clients. The gradient of a record alone is scaled
to a norm of at most 1, w_l N(∇F)_l for tensor l, with the weights of PolarFLStateless: there is no
threshold. The sum gets noise of standard deviation sigma in every coordinate and is divided by B,
which is public too, so that neither a client's batch nor the number of its records shows: a client
counts as much as it has records. Gradients at two points on one batch are one release of two
vectors; one over all records is a release without coins, divided by `records`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from tunefree.core import Algorithm, Generator, System, Vec, mean
from tunefree.data.samples import Index, Inputs, Samples
from tunefree.errors import ConfigError, FleetError
from tunefree.fleet.job import Job
from tunefree.geometry import tensor_weights
from tunefree.models.objective import Objective
from tunefree.privacy.accountant import GRID, Gaussian, described, epsilon, scale_for
from tunefree.privacy.calls import Calls, calls_of
from tunefree.privacy.coins import turns
from tunefree.privacy.leaves import refuse
from tunefree.privacy.noise import Words, discrete_gaussian, grid, on_grid
from tunefree.privacy.promise import Privacy
from tunefree.settings import Settings

ADDED = "one record of one client added or removed; the chance and the denominator fixed"
TRUST = "the server sees noisy updates; holds against everybody"
SIMULATED = "simulated: no guarantee; deployed, " + TRUST
NOT_COVERED = (
    "a person with several records, beyond epsilon times their number; what other runs on the same "
    "records spend, such as other seeds and the trials of a search"
)
KNOWN = "whoever knows the seed; "
LEAST_NORM = 1e-15  # of a gradient; the squares of smaller numbers are no longer exact


class RecordGuarantee(NamedTuple):
    """A promise for every record, with its noise.

    Attributes:
        epsilon: The budget.
        delta: How likely the promise may fail.
        sigma: The noise on a sum of gradients, each of norm at most 1.
        records: Of a client; a public number, by default the mean.
        batch: Records in a batch, by expectation; what sums are divided by.
        limit: Rounds that a client takes part in, at most.
        opening: The gradients of the first pass, by exchange.
        round: Those of a round.
    """

    epsilon: float
    delta: float
    sigma: float
    records: float
    batch: float
    limit: int
    opening: tuple[Calls, ...]
    round: tuple[Calls, ...]

    @property
    def q(self) -> float:
        """The chance of every record to be in a batch."""
        return self.batch / self.records

    def releases(self, rounds: int) -> Counter[Gaussian]:
        """All releases of a client's records after the opening and so many rounds with it."""
        total = Counter[Gaussian]()
        for stage, times in ((self.opening, 1), (self.round, rounds)):
            for calls in stage:
                counts = calls.releases(self.sigma, self.q)
                total += Counter({release: times * n for release, n in counts.items()})
        return total

    def of_job(self, job: Job) -> Counter[Gaussian]:
        """The releases of one job."""
        stage = self.opening if job.stage == "opening" else self.round
        return stage[job.exchange].releases(self.sigma, self.q)

    @property
    def in_all(self) -> Counter[Gaussian]:
        """All releases that a client's records may be in."""
        return self.releases(self.limit)

    def spent(self, rounds: int) -> float:
        return epsilon(self.releases(rounds), self.delta)

    def after(self, rounds: int, sys: System) -> float:
        """The epsilon spent after so many rounds, by the client that was in most of them."""
        return self.spent(turns(rounds, sys.N, sys.S))

    def after_rounds(self, rounds: int) -> float:
        """The same in a real federation, where a client may be in all rounds up to its limit."""
        return self.spent(min(rounds, self.limit))

    def of_runs(self, runs: int) -> float:
        """The epsilon of so many whole runs on the same records."""
        return epsilon({release: runs * n for release, n in self.in_all.items()}, self.delta)

    def checked(self, sys: System) -> RecordGuarantee:
        """The same, unless so many rounds would spend more."""
        if (needed := self.after(sys.T, sys)) > self.epsilon * (1 + 1e-3):
            raise ConfigError(
                f"would spend epsilon = {needed:.3g} with the noise that the run was started with, "
                f"and its budget is {self.epsilon:g}",
                "start a new run with a larger {epsilon}, or lower {rounds}",
                setting="rounds",
                value=sys.T,
            )
        return self

    def noise_on_sum(self, sys: System) -> float:
        """The standard deviation of a round's sum of means of K noisy gradients each, which takes
        the place of the noise on uploads at client level."""
        return self.sigma / self.batch * math.sqrt(sys.S / sys.K)

    def facts(self, deployed: bool = False) -> dict[str, Any]:
        """What a run file stores, and a report states."""
        return {
            **self._asdict(),
            "q": self.q,
            "unit": "record",
            "sampling": f"each record by a coin of {self.q:.3g} in every batch; a client in "
            f"{self.limit} rounds at most",
            "adjacency": ADDED,
            "accountant": described(sampled=True),
            "trust": TRUST if deployed else SIMULATED,
            "not_covered": NOT_COVERED if deployed else KNOWN + NOT_COVERED,
        }

    @classmethod
    def stored(cls, facts: Mapping[str, Any]) -> RecordGuarantee:
        """The guarantee in a run file."""
        known = {name: facts[name] for name in cls._fields}
        for stage in ("opening", "round"):
            known[stage] = tuple(Calls(tuple(b), *more) for b, *more in facts[stage])
        return cls(**known)


def deployed(settings: Settings, algo: Algorithm, theta0: Vec) -> RecordGuarantee | None:
    """What settings promise in a real federation, the same on the server and on every node.

    Nobody's turn is enforced there: a client may take part in all rounds, unless there is a cap.
    """
    privacy = Privacy.of(settings)
    if privacy is None or privacy.unit != "record":
        return None
    refuse(algo, settings)
    if privacy.records is None:
        raise ConfigError(
            "is needed with {unit} = record: about how many records a client has, which need not "
            "be exact and is public",
            "give it, such as {records} = 1000",
            setting="records",
            value=settings.records,
        )
    limit = min(settings.rounds, privacy.participations or settings.rounds)
    return guarantee(privacy, algo, theta0, privacy.records, settings.batch_size, limit)


def guarantee(
    privacy: Privacy,
    algo: Algorithm,
    theta0: Vec,
    records: float,
    batch_size: int,
    limit: int | None = None,
) -> RecordGuarantee:
    """The least noise that keeps this promise with this method over all rounds.

    A client takes part in `limit` rounds at most, by default as often as is its turn.
    """
    limit = turns(algo.sys.T, algo.sys.N, algo.sys.S) if limit is None else limit
    if privacy.participations is not None and limit > privacy.participations:
        raise ConfigError(
            f"is too small: a client takes part in {limit} of {algo.sys.T} rounds",
            f"raise it to {limit}, or lower {{rounds}}",
            setting="participations",
            value=privacy.participations,
        )
    opening, rounds = (tuple(calls_of(algo, theta0, stage)) for stage in ("opening", "round"))
    return of_calls(privacy, records, batch_size, limit, rounds, opening)


def of_calls(
    privacy: Privacy,
    records: float,
    batch_size: int,
    limit: int,
    rounds: tuple[Calls, ...],
    opening: tuple[Calls, ...] = (),
    grid: float = GRID,
) -> RecordGuarantee:
    """The same for a method that asks for these in each of so many rounds.

    >>> round(of_calls(Privacy(3, "record"), 4000, 64, 50, (Calls((1,) * 10),)).sigma, 2)
    0.87
    """
    delta, batch = privacy.delta_for(round(records)), min(batch_size, records)
    once = RecordGuarantee(privacy.epsilon, delta, 1.0, records, batch, limit, opening, rounds)
    kinds = tuple(once.releases(limit).items())
    return once._replace(sigma=scale_for(privacy.epsilon, delta, kinds, grid))


class Draw(NamedTuple):
    """One xi: its number in this job, the samples that it has, and the seed of a model's noise."""

    number: int
    x: Inputs
    y: torch.Tensor | None  # None: nobody's coin fell
    seed: int


class PrivateOracle:
    """A client's only access to its records: noisy sums, and counts that tell nothing."""

    n, steps = 1, 0  # the number of records does not leave

    def __init__(
        self,
        objective: Objective,
        samples: Samples,
        part: Index,
        rng: Generator,
        promise: RecordGuarantee,
        allowed: Calls,
        words: Words | None = None,
    ) -> None:
        """Coins and noise are from `words`, or seeded: the same seed, the same bits."""
        self.rng, self.drawn = rng, 0
        self._objective, self._samples, self._part = objective, samples, part
        self._promise, self._allowed, self._words = promise, allowed, words
        self._weights = tensor_weights(objective.shapes)
        self._batches: list[int] = []
        self._full = 0

    def draw(self) -> Draw:
        self._batches.append(0)
        chance = int(self._promise.q * 2**63)
        words = self._words or (lambda n: self.rng.integers(2**64, size=n, dtype=np.uint64))
        places = self._part[words(len(self._part)) >> np.uint64(1) < np.uint64(chance)]
        return Draw(len(self._batches) - 1, *self._read(places))

    def grad(self, theta: Vec, xi: Draw) -> Vec:
        self._batches[xi.number] += 1
        self.drawn += round(self._promise.batch)
        return self._noisy(theta, [xi], self._promise.batch)

    def loss_and_grad(self, theta: Vec, xi: Draw) -> tuple[Vec, Vec]:
        raise ConfigError("the loss of a batch is not private", "choose another method")

    def mean_grad(self, theta: Vec, K: int) -> Vec:
        return mean(self.grad(theta, self.draw()) for _ in range(K))

    def full_grad(self, theta: Vec) -> Vec:
        self._full += 1
        self.drawn += round(self._promise.records)
        size = max(1, round(self._promise.batch))
        parts = np.split(self._part, range(size, len(self._part), size))
        return self._noisy(theta, (Draw(0, *self._read(p)) for p in parts), self._promise.records)

    def settle(self, job: Job) -> None:
        """Refuse to answer a job that asked for more than was accounted for."""
        if not (asked := Calls(tuple(self._batches), self._full)).within(self._allowed):
            raise FleetError(
                f"client {job.client} took more gradients in {job} than its privacy is accounted "
                f"for: {asked.releases(self._promise.sigma, self._promise.q)}; nothing was sent"
            )

    def _read(self, places: Index) -> tuple[Inputs, torch.Tensor | None, int]:
        """These samples, and a seed; nothing is read for an empty batch."""
        seed = int(self.rng.integers(2**31))
        return (*(self._samples.batch(places, seed) if len(places) else (None, None)), seed)

    def _noisy(self, theta: Vec, batches: Iterable[Draw], size: float) -> Vec:
        """The noisy sum of the batches' single gradients, over a public number."""
        sigma, d, words = self._promise.sigma, theta.numel(), self._words
        some = (
            [bounded(g, w) for g, w in zip(parts, self._weights, strict=True)]
            for xi in batches
            if xi.y is not None
            for parts in self._objective.sample_grads(theta, xi.x, xi.y, xi.seed)
        )
        if words is None:
            noise = self.rng.standard_normal(d, dtype=np.float32)
            total = torch.from_numpy(noise).mul_(sigma).to(theta)
            for parts in some:
                total += torch.cat([torch.mv(g.t(), factor) for g, factor in parts])
            return total.div_(size)
        step, whole = grid(sigma, 1.0), discrete_gaussian(d, words=words)
        for parts in some:
            for row in torch.cat([g * factor.unsqueeze(1) for g, factor in parts], 1).cpu().numpy():
                whole += on_grid(row, step, 1.0)
        return torch.from_numpy((whole * (step / size)).astype(np.float32)).to(theta)


def bounded(g: torch.Tensor, most: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows, and for each the factor that gives it this norm; 0 for one that has none, which is zero
    if it is not finite.

    >>> g, factor = bounded(torch.tensor([[3.0, 4.0], [0.0, 0.0], [1.0, torch.nan]]), 1.0)
    >>> g[2], factor
    (tensor([0., 0.]), tensor([0.2000, 0.0000, 0.0000]))
    """
    length = torch.linalg.vector_norm(g, dim=1)
    usable = (length > LEAST_NORM) & length.isfinite()
    if not bool(usable.all()):
        g = g.masked_fill(~usable.unsqueeze(1), 0.0)
    return g, torch.where(usable, most / length, 0.0)


@dataclass(frozen=True)
class PrivateOracles:
    """Makes the oracle of a job in a simulation, or on a node, which has words."""

    promise: RecordGuarantee
    words: Words | None = None

    def __call__(
        self, objective: Objective, samples: Samples, part: Index, rng: Generator, job: Job
    ) -> PrivateOracle:
        return PrivateOracle(
            objective, samples, part, rng, self.promise, self.allowed(job), self.words
        )

    def allowed(self, job: Job) -> Calls:
        stage = self.promise.opening if job.stage == "opening" else self.promise.round
        return stage[job.exchange]
