"""What a user asks for, and what it comes to in a federation of so many clients and rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from tunefree.core import System
from tunefree.errors import ConfigError
from tunefree.privacy.accountant import GRID, Gaussian, described, epsilon, sigma_for
from tunefree.privacy.coins import turns
from tunefree.settings import FIELDS, HINTS, Settings, Unit, checked

ADDED = "one client added or removed, the denominator fixed"
REPLACED = "one client's uploads replaced by zeros, who takes part being public"
SERVER = "against the server, which sees {} as they are"
OTHERS = (
    "; what other runs on the same clients spend, such as other seeds and the trials of a search"
)
CENTRAL = "the server, which sees {} and adds the noise, from the system's entropy"
WHO_CAME = "; against whoever reads the run file or watches the network, and so sees who takes part"


@dataclass(frozen=True)
class Privacy:
    """Differential privacy: the model says almost the same with and without any one client.

    Args:
        epsilon: The budget of the whole run; training stops before it is exceeded.
        unit: What is protected: a whole "client", or each "record" of each client.
        delta: How likely the promise may fail; by default min(1e-5, N^-1.1) with N clients.
        clip: The largest norm of an upload, for methods that do not bound theirs; by default it
            follows the median norm, which is found out privately.
        participations: How often a client takes part at most. It is then no secret who takes part;
            without it, secret coins decide anew in every round, which costs less.
        records: With records: how many a client has, a public number; by default the mean of all
            clients in a simulation.

    >>> Privacy(epsilon=8, unit="record", delta=1e-6)
    Privacy(epsilon=8.0, unit='record', delta=1e-06, clip=None, participations=None, records=None)
    """

    epsilon: float
    unit: Unit = "client"
    delta: float | None = None
    clip: float | None = None
    participations: int | None = None
    records: float | None = None

    def __post_init__(self) -> None:
        for name, value in {"epsilon": self.epsilon, **self.as_settings()}.items():
            number = checked(name, value, HINTS[Settings][name], FIELDS[name].metadata)
            if not number:
                raise ConfigError("must be positive", setting=name, value=value)
            object.__setattr__(self, name, number)
        if wrong := getattr(self, other := "clip" if self.unit == "record" else "records"):
            raise ConfigError(
                f"does not belong to {{unit}} = {self.unit}", "omit it", setting=other, value=wrong
            )

    def delta_for(self, N: int) -> float:
        """The delta that was asked for, or the usual one.

        >>> Privacy(epsilon=8).delta_for(1_000), Privacy(epsilon=8).delta_for(1_000_000) < 1e-6
        (1e-05, True)
        """
        return min(1e-5, N**-1.1) if self.delta is None else self.delta

    def in_a(self, sys: System, grid: float = GRID) -> Guarantee:
        """The least noise that keeps this promise over all rounds, as exact as the grid."""
        N, S, _, T = sys
        delta, k = self.delta_for(N), self.participations
        if k is None:
            q, limit = S / N, T
        elif (limit := turns(T, N, S)) <= k:
            q = 1.0
        else:
            raise ConfigError(
                f"is too small: {T} rounds of {S} of {N} clients ask each {limit} times",
                f"raise it to {limit}, or lower {{rounds}} to {k * (N // S)}",
                setting="participations",
                value=k,
            )
        sigma = sigma_for(self.epsilon, delta, limit, q, grid)
        return Guarantee(self.epsilon, delta, Gaussian(sigma, q), limit)

    def deployed(self, sys: System, coins: bool) -> Guarantee:
        """The same where nobody knows who will be there: no secret coins unless they are wanted,
        and noise for all rounds that a client may be in."""
        if coins and self.participations:
            raise ConfigError(
                "cannot be combined with {coins}", "omit one", setting="participations"
            )
        if coins:
            return self.in_a(sys)
        whole = replace(self, participations=self.participations or sys.T).in_a(sys)
        limit = self.participations or whole.limit
        sigma = sigma_for(self.epsilon, whole.delta, limit)
        return whole._replace(release=Gaussian(sigma), limit=limit)

    @classmethod
    def of(cls, settings: Settings) -> Privacy | None:
        """The promise in these settings, if there is one."""
        if not settings.epsilon:
            for name in ("unit", "delta", "clip", "participations", "records"):
                if (value := getattr(settings, name)) != FIELDS[name].default:
                    raise ConfigError(
                        "belongs to privacy", "give {epsilon} too", setting=name, value=value
                    )
            return None
        more = ("delta", "clip", "participations", "records")
        given = {name: getattr(settings, name) or None for name in more}
        return cls(settings.epsilon, settings.unit, **given)

    def as_settings(self) -> dict[str, Any]:
        """These values by the names of settings.

        >>> Privacy(epsilon=8, clip=0.5).as_settings()
        {'epsilon': 8.0, 'unit': 'client', 'clip': 0.5}
        """
        return {name: value for name, value in asdict(self).items() if value is not None}


class Guarantee(NamedTuple):
    """A promise with its noise.

    Attributes:
        epsilon: The budget.
        delta: How likely the promise may fail.
        release: The noise of each round, in units of the largest upload, and each client's chance.
        limit: How many releases a client may be in: the rounds, or its participations.

    >>> Privacy(epsilon=8, participations=4).in_a(System(N=100, S=10, K=1, T=40)).limit
    4
    """

    epsilon: float
    delta: float
    release: Gaussian
    limit: int

    def spent(self, releases: int) -> float:
        """The epsilon of a client that may have been in so many of them."""
        return epsilon({self.release: releases}, self.delta)

    def after(self, rounds: int, sys: System) -> float:
        """The epsilon spent after so many rounds."""
        return self.spent(rounds if self.release.q < 1 else turns(rounds, sys.N, sys.S))

    def of_runs(self, runs: int) -> float:
        """The epsilon of so many whole runs on the same clients, whichever of them is published."""
        return self.spent(runs * self.limit)

    def under(self, budget: float) -> Guarantee:
        """The same noise under another budget; without coins a client may then come more often."""
        if self.release.q < 1:
            return self._replace(epsilon=budget)
        mu, sigma = 1 / sigma_for(budget, self.delta, rounds=1), self.release.sigma
        return self._replace(epsilon=budget, limit=int((mu * sigma) ** 2 * (1 + 1e-9)))

    def checked(
        self, sys: System, remedy: str = "start a new run with a larger {epsilon}"
    ) -> Guarantee:
        """The same, unless so many rounds would spend more."""
        if (needed := self.after(sys.T, sys)) > self.epsilon * (1 + 1e-3):
            raise ConfigError(
                f"would spend epsilon = {needed:.3g} with the noise that the run was started with, "
                f"and its budget is {self.epsilon:g}",
                f"{remedy}, or lower {{rounds}}",
                setting="rounds",
                value=sys.T,
            )
        return self

    def facts(self, deployed: bool = False, secure: bool = False) -> dict[str, Any]:
        """What a run file stores, and a report states."""
        sigma, q = self.release
        seen = "sums of uploads" if secure else "uploads"
        coins = (
            f"each client by a coin of {q:g}" if q < 1 else f"a client {self.limit} times at most"
        )
        return {
            **{"epsilon": self.epsilon, "delta": self.delta, "sigma": sigma, "q": q},
            **{"limit": self.limit, "unit": "client", "sampling": coins},
            "adjacency": ADDED if q < 1 else REPLACED,
            "accountant": described(q < 1),
            "trust": CENTRAL.format(seen) if deployed else "simulated: no guarantee",
            "not_covered": "against whoever knows the seed, and " * (not deployed)
            + SERVER.format(seen)
            + OTHERS
            + WHO_CAME * (q < 1),
        }

    @classmethod
    def stored(cls, facts: Mapping[str, Any]) -> Guarantee:
        """The guarantee in a run file."""
        release = Gaussian(facts["sigma"], facts["q"])
        return cls(facts["epsilon"], facts["delta"], release, facts["limit"])
