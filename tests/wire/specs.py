"""Every kind of compressor, for tests that must hold for all of them."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import strategies as st

from tunefree.core import Vec

CONTRACTIVE = (
    "top:0.05",
    "top:0.3",
    "rand:0.3",
    "sign",
    "qsgd-contractive:1",
    "qsgd-contractive:4",
    "rotated:1",
    "rotated:2",
    "rotated:3",
    "any:top:0.02|top:0.1|sign",
)
UNBIASED = ("rand-unbiased:0.3", "qsgd:1", "qsgd:4", "any:qsgd:2|rand-unbiased:0.5")
SPECS = ("identity", *CONTRACTIVE, *UNBIASED)

every_spec = pytest.mark.parametrize("spec", SPECS)


@st.composite
def vectors(draw: st.DrawFn, d: int | None = None) -> Vec:
    """Of any size and precision, often with zeros and ties."""
    d = draw(st.integers(1, 40)) if d is None else d
    numbers = st.one_of(st.integers(-2, 2).map(float), st.floats(-1e6, 1e6, width=32))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    return torch.tensor(draw(st.lists(numbers, min_size=d, max_size=d)), dtype=dtype)


@st.composite
def layouts(draw: st.DrawFn, d: int) -> list[int]:
    """Sizes of tensors that make up a vector of length d."""
    cuts = sorted(draw(st.sets(st.integers(1, d - 1), max_size=4))) if d > 1 else []
    return [b - a for a, b in pairwise([0, *cuts, d])]
