"""The accountant: from noise to epsilon and back; every epsilon is an upper bound.

One release is a sum of vectors of norm at most 1 plus Gaussian noise of standard deviation sigma.
Neighbours differ by the presence of one client, or of one of its records; the sum is divided by a
number that is fixed in advance. Releases in which every client may take part need no
package: n of them at sigma are exactly one at sigma / sqrt(n). Where a secret coin decides who
takes part, dp-accounting convolves the distributions of the privacy loss (PLD).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib import metadata
from typing import Any, NamedTuple

import torch

from tunefree.errors import ConfigError

GRID = 1e-3  # of privacy losses; rounded up, so still a bound; 1e-4 differs by less than 1e-4
ROUGH = 5e-3  # five times as fast
EXACT = 1e-12  # relative, of a number that is searched for
TINY = 1e-9  # nothing that is searched for is smaller


class Gaussian(NamedTuple):
    """A release of a sum with Gaussian noise.

    Attributes:
        sigma: The noise's standard deviation; a client's vector has norm at most 1.
        q: The chance of each client to be in it, by a secret coin; 1: all may be.

    >>> Gaussian(sigma=0.9, q=0.1)
    Gaussian(sigma=0.9, q=0.1)
    """

    sigma: float
    q: float = 1.0


def epsilon(spent: Mapping[Gaussian, int], delta: float, grid: float = GRID) -> float:
    """The epsilon of so many releases of each kind.

    >>> round(epsilon({Gaussian(2.0): 1}, delta=1e-5), 3), epsilon({}, delta=1e-5)
    (1.993, 0.0)
    """
    some = {release: times for release, times in spent.items() if times}
    if not some:
        return 0.0
    if any(release.sigma <= 0 for release in some):
        return math.inf
    if all(release.q == 1 for release in some):
        return gaussian_epsilon(sum(n / r.sigma**2 for r, n in some.items()) ** 0.5, delta)
    whole: Any = None
    with quiet():
        for release, times in some.items():
            part = privacy_loss(release, grid).self_compose(times)
            whole = part if whole is None else whole.compose(part)
        return float(whole.get_epsilon_for_delta(delta))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The exact epsilon of a vector of norm mu under noise of standard deviation 1."""
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    return least(lambda e: gaussian_delta(mu, e) <= delta, max(1.0, mu * mu))


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Φ(mu/2 - epsilon/mu) - exp(epsilon) Φ(-mu/2 - epsilon/mu).

    >>> round(gaussian_delta(mu=1.0, epsilon=1.0), 6)
    0.126937
    """
    x = torch.tensor([mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu], dtype=torch.float64)
    first, second = torch.special.log_ndtr(x).tolist()
    return math.exp(first) - math.exp(min(first, epsilon + second))


def sigma_for(
    budget: float, delta: float, rounds: int, q: float = 1.0, grid: float = GRID
) -> float:
    """The least noise with which so many releases stay within the budget, an epsilon.

    >>> round(sigma_for(1.0, 1e-5, rounds=1), 3), round(sigma_for(1.0, 1e-5, rounds=4), 3)
    (3.731, 7.461)
    """
    return scale_for(budget, delta, ((Gaussian(1.0, q), rounds),), grid)


@lru_cache(maxsize=256)
def scale_for(
    budget: float, delta: float, kinds: tuple[tuple[Gaussian, int], ...], grid: float = GRID
) -> float:
    """The least factor on the noise of so many releases of each kind that does the same."""
    once = least(lambda sigma: gaussian_delta(1 / sigma, budget) <= delta, 1.0)
    most = math.sqrt(sum(n / r.sigma**2 for r, n in kinds)) * once  # what it takes without coins
    if all(release.q == 1 for release, _ in kinds):
        return most
    q = max(release.q for release, _ in kinds)

    def fits(scale: float) -> bool:
        scaled = {release._replace(sigma=scale * release.sigma): n for release, n in kinds}
        return epsilon(scaled, delta, grid) <= budget

    return least(fits, min(most, math.hypot(q * most, once / 2)), grid / 10)


def least(holds: Callable[[float], bool], near: float, exact: float = EXACT) -> float:
    """The least number above zero for which this holds, as it does for all greater ones.

    >>> round(least(lambda x: x * x >= 2, near=1.0), 6)
    1.414214
    """
    low = high = near
    while not holds(high):
        low, high = high, 2 * high
    while low == high or holds(low):
        low, high = low / 2, low
        if low < TINY:
            return low
    while high - low > exact * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def of_a_search(release: Gaussian, rounds: int, trials: float, delta: float) -> float:
    """The epsilon of the best of about `trials` such runs: their number is drawn at random, from
    the geometric distribution with this mean.

    That a fixed number of runs were made and the best one kept costs what all of them cost:
    `epsilon({release: rounds * trials}, delta)`.
    """
    from_rdp = rdp(release, rounds)
    return rdp_epsilon(packages().dp_event.RepeatAndSelectDpEvent(from_rdp, trials, 1), delta)


def rdp(release: Gaussian, rounds: int) -> Any:
    """Rounds of a release as dp-accounting writes them."""
    event = packages().dp_event
    once = event.PoissonSampledDpEvent(release.q, event.GaussianDpEvent(release.sigma))
    return event.SelfComposedDpEvent(once, rounds)


def rdp_epsilon(event: Any, delta: float) -> float:
    """A second, looser bound, by Rényi divergences; that of PLD has to be below it."""
    with quiet():
        return float(packages().rdp.RdpAccountant().compose(event).get_epsilon(delta))


@lru_cache(maxsize=64)
def privacy_loss(release: Gaussian, grid: float) -> Any:
    """The distribution of one release's privacy loss."""
    sigma, q = release
    return packages().pld.privacy_loss_distribution.from_gaussian_mechanism(
        sigma, sampling_prob=q, value_discretization_interval=grid
    )


@lru_cache(maxsize=1)
def packages() -> Any:
    """dp-accounting, imported when it is first needed: that takes a second."""
    try:
        import dp_accounting
        from dp_accounting import pld, rdp  # noqa: F401  (attributes of the package from now on)
    except ImportError:
        raise ConfigError(
            "accounting for coins that decide who takes part needs dp-accounting, which is not "
            "installed",
            "pip install 'tunefree[privacy]', or limit each client's participations",
        ) from None
    return dp_accounting


def described(sampled: bool) -> str:
    """Which accountant gives these figures, with its version, for the record of a run."""
    if not sampled:
        return f"exact Gaussian, tunefree {metadata.version('tunefree')}"
    return f"PLD, dp-accounting {metadata.version('dp-accounting')}"


@contextmanager
def quiet() -> Iterator[None]:
    """No remarks on standard error from dp-accounting, which logs through absl."""
    absl = logging.getLogger("absl")
    before = absl.level
    absl.setLevel(logging.ERROR)
    try:
        yield
    finally:
        absl.setLevel(before)
