"""The accountant against published values, a second accountant and a third."""

from __future__ import annotations

import builtins
import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from tunefree.core import System
from tunefree.errors import ConfigError
from tunefree.privacy import accountant
from tunefree.privacy.accountant import (
    Gaussian,
    epsilon,
    gaussian_delta,
    gaussian_epsilon,
    of_a_search,
    rdp,
    rdp_epsilon,
    sigma_for,
)
from tunefree.privacy.promise import Privacy

TUTORIAL = Gaussian(1.2, 120 / 3383)  # of TFF, 100 rounds, delta 1e-5; it says 1.99, by RDP


@pytest.fixture
def coins() -> None:
    pytest.importorskip("dp_accounting")


def test_the_gaussian_is_exact() -> None:
    mu = 1.3
    at = torch.linspace(-60, 60, 2_000_001, dtype=torch.float64)
    here, there = torch.exp(-((at - mu) ** 2) / 2), torch.exp(-(at**2) / 2)
    integral = (here - math.e**0.7 * there).clamp_min(0).sum() * 120 / 2_000_000
    assert gaussian_delta(mu, 0.7) == pytest.approx(float(integral) / math.sqrt(2 * math.pi), 1e-6)
    assert gaussian_delta(mu, gaussian_epsilon(mu, 1e-6)) == pytest.approx(1e-6)
    assert gaussian_epsilon(1e-5, 0.1) == 0


def test_no_number_is_too_large_for_the_gaussian() -> None:
    assert gaussian_epsilon(200.0, 1e-5) == pytest.approx(200**2 / 2 + 200 * 4.26, rel=1e-2)
    assert gaussian_delta(1e-3, 8) == 0


def test_releases_to_all_add_up_as_one() -> None:
    four = epsilon({Gaussian(2.0): 4}, 1e-5)
    assert four == pytest.approx(epsilon({Gaussian(1.0): 1}, 1e-5))
    assert four == pytest.approx(epsilon({Gaussian(2.0): 2, Gaussian(2 * 2**-0.5): 1}, 1e-5))
    assert sigma_for(8, 1e-5, 9) == pytest.approx(3 * sigma_for(8, 1e-5, 1))
    assert epsilon({Gaussian(0.0): 1}, 1e-5) == math.inf


def test_sigma_and_rounds_are_found_again(coins: None) -> None:
    for q in (1.0, 0.1):
        sigma = sigma_for(3, 1e-5, 40, q)
        assert 2.99 < epsilon({Gaussian(sigma, q): 40}, 1e-5) <= 3
        assert epsilon({Gaussian(sigma, q): 41}, 1e-5) > 3


def test_published_values(coins: None) -> None:
    assert rdp_epsilon(rdp(TUTORIAL, 100), 1e-5) == pytest.approx(1.99, abs=0.005)
    assert of_a_search(TUTORIAL, 100, 10, 1e-5) == pytest.approx(3.83, abs=0.005)
    assert (
        5.4 < rdp_epsilon(rdp(TUTORIAL, 900), 1e-5) < 5.56
    )  # nine such runs; 5.55 at whole orders
    assert epsilon({TUTORIAL: 100}, 1e-5) == pytest.approx(1.707, abs=0.001)


@pytest.mark.parametrize(
    ("N", "S", "sigma", "budget"),
    [
        (1000, 100, 0.87, 8),
        (1000, 100, 1.95, 2),
        (2000, 100, 0.67, 8),
        (2000, 100, 1.25, 2),
        (1000, 50, 0.65, 8),
        (1000, 50, 1.20, 2),
    ],
)
def test_reference_sigmas(coins: None, N: int, S: int, sigma: float, budget: float) -> None:
    by_rdp = rdp_epsilon(rdp(Gaussian(sigma, S / N), 100), N**-1.1)
    by_pld = epsilon({Gaussian(sigma, S / N): 100}, N**-1.1)
    assert by_rdp == pytest.approx(budget, rel=0.02)
    assert 0.7 * budget < by_pld < by_rdp


def test_fixed_participations_against_coins(coins: None) -> None:
    assert sigma_for(8, 1e-5, 500, 0.05) == pytest.approx(0.97, abs=0.005)


def test_the_grid_of_losses_is_fine_enough(coins: None) -> None:
    fine = epsilon({TUTORIAL: 100}, 1e-5, grid=1e-4)
    assert 0 <= epsilon({TUTORIAL: 100}, 1e-5) - fine < 1e-4
    assert 0 <= epsilon({TUTORIAL: 100}, 1e-5, accountant.ROUGH) - fine < 2e-3


def test_kinds_of_release_compose(coins: None) -> None:
    both: Mapping[Gaussian, int] = {Gaussian(1.2, 0.1): 10, Gaussian(5.0): 2}
    parts = [epsilon({release: times}, 1e-5) for release, times in both.items()]
    assert max(parts) < epsilon(both, 1e-5) < sum(parts)
    assert epsilon({Gaussian(1.2, 0.1): 5, Gaussian(5.0): 0}, 1e-5) == epsilon(
        {Gaussian(1.2, 0.1): 5}, 1e-5
    )


def test_it_says_nothing(coins: None, capfd: pytest.CaptureFixture[str]) -> None:
    rdp_epsilon(rdp(Gaussian(0.87, 0.1), 100), 1e-5)  # absl would warn of five orders
    of_a_search(TUTORIAL, 100, 10, 1e-5)
    assert capfd.readouterr() == ("", "")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("dp_accounting"):
            raise ImportError(name)
        return usual(name, *rest, **more)

    accountant.packages.cache_clear()
    accountant.privacy_loss.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    assert Privacy(epsilon=8, participations=10).in_a(System(100, 10, 1, 50)).release.sigma > 1
    with pytest.raises(ConfigError, match=r"pip install 'tunefree\[privacy\]'"):
        Privacy(epsilon=8).in_a(System(100, 10, 1, 50))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("sigma", "q", "rounds"), [(1.2, 120 / 3383, 100), (0.87, 0.1, 100), (2.25, 0.02, 1000)]
)
def test_opacus_agrees(coins: None, sigma: float, q: float, rounds: int) -> None:
    prv = pytest.importorskip("opacus.accountants").PRVAccountant()
    prv.history = [(sigma, q, rounds)]
    theirs = prv.get_epsilon(delta=1e-5, eps_error=0.001)
    assert epsilon({Gaussian(sigma, q): rounds}, 1e-5) == pytest.approx(theirs, rel=0.01)


def test_a_promise_in_a_federation(coins: None) -> None:
    sys = System(N=1000, S=100, K=3, T=100)
    guarantee = Privacy(epsilon=8).in_a(sys)
    assert guarantee.release.q == 0.1
    assert guarantee.limit == 100
    assert 7.99 < guarantee.spent(100) <= 8 < guarantee.spent(101)
    assert "added or removed" in guarantee.facts()["adjacency"]
    assert "dp-accounting 0.6" in guarantee.facts()["accountant"]
    capped = Privacy(epsilon=8, participations=20).in_a(sys)
    assert "replaced by zeros" in capped.facts()["adjacency"]
    assert (capped.release.q, capped.limit) == (1.0, 10)  # 100 rounds ask each 10 times
    assert capped.release.sigma == pytest.approx(sigma_for(8, 1e-5, 1) * 10**0.5)
    assert capped.after(1, sys) < capped.after(11, sys) == capped.spent(2)
    with pytest.raises(ConfigError, match="participations = 9 is too small: 100 rounds of 100 of"):
        Privacy(epsilon=8, participations=9).in_a(sys)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"epsilon": 0}, "epsilon = 0 must be positive"),
        ({"epsilon": math.inf}, "epsilon = inf is too large"),
        ({"epsilon": math.nan}, "epsilon = nan is too large"),
        ({"epsilon": None}, "epsilon = None must be a number"),
        ({"epsilon": "8"}, "epsilon = '8' must be a number"),
        ({"epsilon": 8, "delta": 1.0}, "delta = 1.0 is too large; it must be below 1"),
        ({"epsilon": 8, "delta": 0.0}, "delta = 0.0 must be positive"),
        ({"epsilon": 8, "clip": -1}, "clip = -1.0 is too small"),
        ({"epsilon": 8, "unit": "user"}, "unit = 'user' is not known"),
        ({"epsilon": 8, "participations": 0}, "participations = 0 must be positive"),
        ({"epsilon": 8, "participations": True}, "participations = True must be a whole number"),
    ],
)
def test_a_wrong_promise_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Privacy(**wrong)


@pytest.mark.parametrize(
    ("sigma", "q", "times"), [(0.8723, 0.016, 500), (2.25, 0.032, 500), (1.2, 120 / 3383, 100)]
)
def test_opacus_finds_the_same(sigma: float, q: float, times: int) -> None:
    """Its accountant is another one: PRV, whose estimate is not a bound but very close."""
    accountants = pytest.importorskip("opacus.accountants")
    theirs = accountants.PRVAccountant()
    theirs.history = [(sigma, q, times)]
    assert epsilon({Gaussian(sigma, q): times}, 1e-5) == pytest.approx(
        theirs.get_epsilon(1e-5), rel=0.01
    )


def test_gradients_on_one_batch_compose_inside_one_sampling_event() -> None:
    """Two gradients on one batch cost more than on two: the same coin decides on both."""
    together = epsilon({Gaussian(2.0 / 2**0.5, 0.1): 50}, 1e-5)
    assert epsilon({Gaussian(2.0, 0.1): 50}, 1e-5) < together
    assert together > epsilon({Gaussian(2.0, 0.1): 100}, 1e-5)
