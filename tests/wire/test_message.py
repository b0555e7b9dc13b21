"""The size of messages, and that nothing but finite numbers is accepted."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

from tunefree.core import Numbers, OpeningUp, Vec, stream
from tunefree.wire import Compressed, bits, from_spec, value_bits
from tunefree.wire.message import fault


class Up(NamedTuple):
    theta: Vec
    delta: Compressed
    weight: float


class Several(NamedTuple):
    theta: Vec
    steps: Numbers


def up(v: Vec, spec: str = "top:0.5", weight: float = 1.0) -> Up:
    return Up(torch.ones(8), from_spec(spec)(v, stream(0, "C")), weight)


def test_bits_are_the_sum_of_the_fields() -> None:
    assert bits(up(torch.ones(8))) == 8 * 32 + 4 * (32 + 3) + 32
    assert value_bits(up(torch.ones(8))) == 8 * 32 + 4 * 32 + 32
    double = up(torch.ones(8, dtype=torch.float64))
    assert (bits(double), value_bits(double)) == (8 * 32 + 4 * (64 + 3) + 32, 8 * 32 + 4 * 64 + 32)


LIKE = torch.ones(8)


def test_a_few_numbers_have_32_bits_each() -> None:
    for count in range(4):
        message = Several(LIKE.double(), (0.5,) * count)
        assert bits(message) == value_bits(message) == 8 * 64 + 32 * count


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_each_of_a_few_numbers_must_be_finite(bad: float) -> None:
    assert fault(Several(LIKE, (1e30, -1e30)), Several, LIKE) == ""
    assert fault(Several(LIKE, (1.0, bad, 2.0)), Several, LIKE) == "`steps` is not finite"


def test_valid_messages_pass() -> None:
    assert fault(up(LIKE), Up, LIKE, bounds={"theta": 8**0.5, "delta": 2}) == ""


@pytest.mark.parametrize("spec", ["identity", "top:0.5", "sign", "qsgd:4"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_compressed_upload_that_is_not_finite_is_refused(spec: str, bad: float) -> None:
    v = torch.ones(8)
    v[2] = bad
    assert fault(up(v, spec), Up, LIKE) == "`delta` is not finite"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([3e38, 3e38, 3e38], ""),  # their sum is infinite, they are not
        ([1.0, float("inf"), -float("inf")], "`grad` is not finite"),
        ([1.0, float("nan"), 0.0], "`grad` is not finite"),
    ],
)
def test_every_number_of_a_vector_must_be_finite(values: list[float], said: str) -> None:
    assert fault(OpeningUp(torch.tensor(values)), OpeningUp, torch.zeros(3)) == said


def test_a_scalar_that_is_not_finite_is_refused() -> None:
    assert fault(up(LIKE, weight=float("nan")), Up, LIKE) == "`weight` is not finite"


def test_a_foreign_message_is_refused() -> None:
    assert fault(OpeningUp(LIKE), Up, LIKE) == "a message 'OpeningUp' came instead of 'Up'"


def test_a_wrong_length_is_refused() -> None:
    assert fault(up(LIKE[:7]), Up, LIKE) == "`delta` has length 7, not d = 8"
    assert fault(up(LIKE), Up, LIKE[:7]) == "`theta` has length 8, not d = 7"


def test_a_norm_that_the_method_cannot_give_is_refused() -> None:
    assert fault(up(LIKE), Up, LIKE, {"theta": 2.8}) == (
        "`theta` has norm 2.828; the method gives at most 2.8"
    )
    assert fault(up(LIKE), Up, LIKE, {"delta": 1.9}) == (
        "`delta` has norm 2; the method gives at most 1.9"
    )
    assert fault(up(LIKE), Up, LIKE, {"theta": 2.828}) == ""  # within rounding
