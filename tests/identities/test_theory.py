"""Steps of tuning-free methods: the theorems' numbers, the formulas shown, and the clipped beta."""

from __future__ import annotations

import math
import re
import warnings
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.variants import METHODS
from tunefree.core import System, numbers
from tunefree.methods.registry import configure, note_no_momentum
from tunefree.settings import load

WITH_THEORY = [name for name, cls in METHODS.items() if cls.about.steps]


@st.composite
def systems(draw: st.DrawFn) -> System:
    N = draw(st.integers(1, 200))
    return System(N, draw(st.integers(1, N)), draw(st.integers(1, 50)), draw(st.integers(1, 5000)))


def theory(name: str, sys: System) -> tuple[Any, list[str]]:
    """The algorithm, and what is printed about it."""
    names = ("clients", "per_round", "local_steps", "rounds")
    settings = load(None, {"algorithm": name, **dict(zip(names, sys, strict=True))})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        algo = configure(settings, settings.system, ((5,),))
        note_no_momentum(algo)
    return algo, [str(warning.message) for warning in caught]


def evaluate(formula: str, sys: System, t: int = 0) -> float:
    """A formula as printed, in round t: a space between factors multiplies, ^ is a power."""
    python = re.sub(r"(?<=[\w)])\s+(?=[\w(])", "*", formula).replace("^", "**")
    return float(eval(python, {"sqrt": math.sqrt, "min": min, "max": max, "t": t, **sys._asdict()}))


def test_formulas_are_read_as_printed() -> None:
    sys = System(N=9, S=2, K=8, T=81)
    assert evaluate("(S K)^(1/4) / T^(3/4)", sys) == pytest.approx(2 / 27)
    assert evaluate("min(1, 7 / (K sqrt(T)))", sys) == pytest.approx(7 / 72)


@pytest.mark.parametrize("name", WITH_THEORY)
@given(sys=systems())
def test_shown_formulas_are_the_steps_taken(name: str, sys: System) -> None:
    algo, _ = theory(name, sys)
    shown = {name: evaluate(step.formula, sys) for name, step in algo.about.steps.items()}
    assert {name: numbers(algo)[name] for name in shown} == pytest.approx(shown, rel=1e-13)


@given(sys=systems(), t=st.integers(0, 5000))
def test_shown_formulas_are_the_steps_of_every_round(sys: System, t: int) -> None:
    """PolarFL's shrink with t; those of the others do not."""
    algo, _ = theory("polarfl", sys)
    steps = algo.about.steps
    gamma, path, beta = (
        evaluate(steps[name].formula, sys, t) for name in ("gamma", "path", "beta")
    )
    for R, a in ((1.0, 1.0), (0.3, 0.3), (0.0, 0.1)):
        assert algo.pace(t, R) == pytest.approx((a * gamma, a * path, beta), rel=1e-13)


@pytest.mark.parametrize(
    ("T", "K", "beta", "gamma", "eta", "eta_parfrefl", "vr", "eta_vr"),
    [
        (100, 12, "1.000", "0.1047", "0.00833", "0.00796", "0.2289", "8.3e-04"),
        (150, 12, "0.894", "0.0772", "0.00680", "0.00719", "0.1747", "5.6e-04"),
        (300, 12, "0.632", "0.0459", "0.00481", "0.00605", "0.1101", "2.8e-04"),
        (500, 12, "0.490", "0.0313", "0.00373", "0.00532", "0.0783", "1.7e-04"),
        (1000, 12, "0.346", "0.0186", "0.00264", "0.00448", "0.0493", "8.3e-05"),
        (400, 10, "0.500", "0.0354", "0.00500", "0.00707", "0.0855", "2.5e-04"),
    ],
)
def test_typical_values(
    T: int, K: int, beta: str, gamma: str, eta: str, eta_parfrefl: str, vr: str, eta_vr: str
) -> None:
    sys = System(N=100, S=10, K=K, T=T)
    for name, eta_expected in [("padamfed", eta), ("adamasfl", eta), ("parfrefl", eta_parfrefl)]:
        algo, _ = theory(name, sys)
        shown = (f"{algo.beta:.3f}", f"{algo.gamma:.4f}", f"{algo.eta:.5f}")
        assert shown == (beta, gamma, eta_expected)
    algo, _ = theory("padamfed_vr", sys)
    assert (f"{algo.beta:.4f}", f"{algo.gamma:.4f}", f"{algo.eta:.1e}") == (vr, vr, eta_vr)
    algo, _ = theory("scaffold_norm", sys)
    assert (f"{algo.gamma:.4f}", f"{algo.eta:.5f}") == (gamma, eta)


@pytest.mark.parametrize(
    ("name", "power"),
    [("padamfed", 1), ("parfrefl", 1), ("padamfed_vr", 2), ("adamasfl", 1), ("masfl", 1)],
)
@given(sys=systems())
def test_beta_is_clipped_with_one_warning(name: str, power: int, sys: System) -> None:
    work, room = sys.S * sys.K, sys.T**power
    assume(work != room)
    algo, messages = theory(name, sys)
    if work < room:
        assert algo.beta < 1
        assert messages == []
    else:
        assert algo.beta == 1
        (message,) = messages
        for part in ["no momentum", f"T = {sys.T}", f"S*K = {work}", "more rounds", "beta = 1"]:
            assert part in message


def test_normalised_scaffold_has_no_momentum_to_warn_of() -> None:
    assert theory("scaffold_norm", System(N=10, S=10, K=10, T=5))[1] == []
