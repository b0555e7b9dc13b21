"""What messages weigh, and that nothing beyond numbers gets past the door."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

from tunefree.core import Reply, Vec, stream
from tunefree.errors import WireError
from tunefree.wire import Compressed, bits, from_spec, value_bits
from tunefree.wire.message import refuse_non_finite


class Up(NamedTuple):
    theta: Vec
    delta: Compressed
    weight: float


def up(v: Vec, spec: str = "top:0.5", weight: float = 1.0) -> Up:
    return Up(torch.ones(3), from_spec(spec)(v, stream(0, "C")), weight)


def test_bits_are_the_sum_of_the_fields() -> None:
    assert bits(up(torch.ones(8))) == 3 * 32 + 4 * (32 + 3) + 32
    assert value_bits(up(torch.ones(8))) == 3 * 32 + 4 * 32 + 32
    double = up(torch.ones(8, dtype=torch.float64))
    assert (bits(double), value_bits(double)) == (3 * 32 + 4 * (64 + 3) + 32, 3 * 32 + 4 * 64 + 32)


def test_finite_replies_pass() -> None:
    refuse_non_finite([Reply(1, 1, 0, up(torch.ones(8)))], t=3)


@pytest.mark.parametrize("spec", ["identity", "top:0.5", "sign", "qsgd:4"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_compressed_upload_that_is_not_finite_is_refused(spec: str, bad: float) -> None:
    v = torch.ones(8)
    v[2] = bad
    replies = [Reply(4, 1, 0, up(torch.ones(8))), Reply(5, 1, 0, up(v, spec))]
    with pytest.raises(WireError, match="client 5 uploaded a non-finite `delta` at t = 42"):
        refuse_non_finite(replies, t=42)


def test_a_scalar_that_is_not_finite_is_refused() -> None:
    with pytest.raises(WireError, match="client 5 uploaded a non-finite `weight`"):
        refuse_non_finite([Reply(5, 1, 0, up(torch.ones(8), weight=float("nan")))], t=0)
