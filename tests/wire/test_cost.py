"""What each algorithm sends, in vectors of length d, counted from the messages of a run."""

from __future__ import annotations

import pytest

from tests.problem import quadratic, simulate
from tunefree.algorithms import REGISTRY, build
from tunefree.core import System
from tunefree.schedule.trip import Step

SYS = System(N=7, S=3, K=2, T=8)
PROBLEM = quadratic(N=SYS.N)

COSTS: list[tuple[str, dict[str, object], tuple[float, float], tuple[float, float]]] = [
    # name, options, (down, up) of a client in a round, (down, up) of a client in the opening
    ("padamfed", {}, (2, 2), (1, 1)),
    ("padamfed_vr", {}, (3, 3), (1, 1)),
    ("padamfed_vr", {"momentum": "storm"}, (3, 3), (1, 1)),
    ("padamfed_vr", {"momentum": "ema"}, (3, 2), (1, 1)),
    ("parfrefl", {}, (1, 1), (1, 1)),
    ("fedavg", {}, (1, 1), (0, 0)),
    ("fedavg", {"weighting": "examples"}, (1, 1), (0, 0)),
    ("scaffold", {"option": "I"}, (2, 2), (0, 0)),
    ("scaffold", {"option": "II"}, (2, 2), (0, 0)),
    ("scaffold", {"start": "gradients"}, (2, 2), (1, 1)),
    ("scaffold_m", {}, (2, 2), (1, 1)),
    ("scaffold_m_vr", {}, (3, 2), (1, 1)),
    ("scaffold_norm", {}, (2, 2), (1, 1)),
]


def vectors_per_client(step: Step, clients: int) -> tuple[float, float]:
    """(down, up) in numbers of 64 bits, over d and the clients that should have taken part."""
    one_vector = 64 * PROBLEM.d * clients
    total = {"down": 0.0, "up": 0.0}
    for traffic in step.traffic:
        assert traffic.messages == clients
        total[traffic.direction] += traffic.bits / one_vector
    return total["down"], total["up"]


@pytest.mark.parametrize(("name", "options", "per_round", "per_opening"), COSTS)
def test_traffic(
    name: str,
    options: dict[str, object],
    per_round: tuple[float, float],
    per_opening: tuple[float, float],
) -> None:
    opening, *rounds = simulate(build(name, SYS, options), PROBLEM).steps
    assert opening.t == -1
    assert vectors_per_client(opening, SYS.N) == per_opening
    assert [step.t for step in rounds] == list(range(SYS.T))
    assert {vectors_per_client(step, SYS.S) for step in rounds} == {per_round}


def test_every_algorithm_has_its_price() -> None:
    assert {name for name, *_ in COSTS} == set(REGISTRY)


def test_a_zero_opening_sends_nothing() -> None:
    opening, *_ = simulate(build("padamfed", SYS), PROBLEM, "zero").steps
    assert (opening.t, opening.traffic, opening.drawn) == (-1, (), 0)
