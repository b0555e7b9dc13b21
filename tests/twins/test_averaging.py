"""Averaging: the model handed out is a mean of the server's; the method itself is as ever."""

from __future__ import annotations

import numpy as np
import pytest

from tests.problem import simulate, simulate_buffered
from tunefree.core import System, about
from tunefree.errors import ConfigError
from tunefree.methods.played import Averaged
from tunefree.methods.registry import build
from tunefree.testing import Array, quadratic

SYS = System(N=7, S=3, K=4, T=30)
PROBLEM = quadratic(N=SYS.N, seed=5)
GIVEN: dict[str, dict[str, object]] = {
    "fedavg": {"eta": 0.05},
    "mime": {"eta": 0.01},  # two exchanges a round
    "padamfed": {},  # an opening
    "scaffold": {"eta": 0.05, "decay": "linear"},
    "fedavgm": {"eta": 0.02, "robust": "median"},
}


def mean_of(thetas: list[Array]) -> list[Array]:
    """The weights of the page, all at once: Shamir and Zhang's of degree 8."""
    means = [thetas[0]]
    for t in range(len(thetas) - 1):
        weights = [np.prod([s + k for k in range(1, 9)], dtype=float) for s in range(t + 1)]
        means.append(np.average(thetas[1 : t + 2], axis=0, weights=weights))
    return means


@pytest.mark.parametrize("name", GIVEN)
def test_a_mean_of_the_methods_own_models(name: str) -> None:
    plain = simulate(build(name, SYS, GIVEN[name]), PROBLEM)
    trace = simulate(build(name, SYS, {**GIVEN[name], "average": "on"}), PROBLEM)
    assert trace.cohorts == plain.cohorts
    for theta, mean in zip(trace.thetas, mean_of(plain.thetas), strict=True):
        np.testing.assert_allclose(theta, mean, rtol=1e-6)


def test_buffered() -> None:
    plain, trace = (
        simulate_buffered(build("fedbuff", SYS, {"eta": 0.05, **more}), PROBLEM, 5)
        for more in ({}, {"average": "on"})
    )
    for theta, mean in zip(trace.thetas, mean_of(plain.thetas), strict=True):
        np.testing.assert_allclose(theta, mean, rtol=1e-6)


def test_a_method_with_an_average_of_its_own_is_not_averaged_again() -> None:
    algo = build("polarfl", SYS, {"average": "on"})
    assert not isinstance(algo, Averaged)
    assert algo == build("polarfl", SYS)


def test_words() -> None:
    assert about(build("fedavg", SYS, {"eta": 0.1, "average": "on"})).title == "FedAvg, averaged"
    with pytest.raises(ConfigError, match="average = 'yes' is not known; choose from off, on"):
        build("fedavg", SYS, {"average": "yes"})
