"""The cost of a method for a large model is counted on short vectors, bit for bit."""

from __future__ import annotations

from importlib import import_module
from math import prod
from typing import Any

import pytest

from tests.variants import COMPRESSING, METHODS
from tunefree.core import Algorithm, System
from tunefree.methods.registry import build

cost: Any = import_module("tunefree.testing.cost")  # the module, not its function
SYS = System(N=50, S=10, K=10, T=400)
SHAPES = ((40, 7, 3, 3), (40,), (50, 40), (), (10, 50))
CASES = [(name, "") for name in METHODS] + [
    (name, compressor)
    for name in COMPRESSING
    for compressor in ("qsgd:4",) * (name == "scallion") or ("top:0.05", "any:sign|top:0.02@whole")
]


@pytest.mark.parametrize(("name", "compressor"), CASES)
def test_the_bits_of_a_large_model_are_those_of_a_real_step(
    name: str, compressor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    algo = build(name, SYS, {"compressor": compressor} if compressor else {}, shapes=SHAPES)
    d = sum(map(prod, SHAPES))
    played = cost.costs(algo, d)
    monkeypatch.setattr(cost, "LARGE", 1)
    play, lengths = cost.measured, list[int]()

    def noted(algo: Algorithm, d: int) -> list[int]:
        lengths.append(d)
        bits: list[int] = play(algo, d)
        return bits

    monkeypatch.setattr(cost, "measured", noted)
    assert cost.costs(algo, d) == played
    assert max(lengths) < 10
