"""Decoding is total: any bytes give a message or a WireError, in little time and memory."""

from __future__ import annotations

import math
import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.wire.specs import SPECS
from tests.wire.test_codec import Everything, Several, Squeezed, Vector
from tunefree.core import Message, stream
from tunefree.errors import WireError
from tunefree.wire import bits, decode, encode, from_spec, value_bits
from tunefree.wire.compressed import MOST_PARTS

D = 24
LIKE = torch.zeros(D)


def samples() -> list[tuple[type, bytes]]:
    """One valid message of every kind."""
    v = torch.from_numpy(stream(9, "v").normal(size=D)).float()
    honest: list[Message] = [Vector(v)]
    honest += [Several(v, (0.5, -2.0, 3.0)[:count], 0.5) for count in range(4)]
    for spec in SPECS:
        for sizes in (None, [1, 3, 20]):
            sent = from_spec(spec, sizes)(v, stream(9, "C"))
            honest += [Squeezed(sent), Everything(v, 7, sent, 0.5)]
    return [(type(message), encode(message)) for message in honest]


SAMPLES = samples()


def receive(data: bytes, kind: Any) -> bool:
    """Whether the bytes were accepted as a message, which must then be usable."""
    complaint = ""
    try:
        message = decode(data, kind, like=LIKE, client=1)
    except WireError as error:
        complaint = str(error)
    if complaint:
        assert complaint.startswith("client 1 sent an unusable `")
        return False
    assert type(message) is kind
    assert 0 < value_bits(message) <= bits(message) <= 8 * len(data)
    if kind is Several:
        assert all(map(math.isfinite, (*message.steps, message.beta)))
    if hasattr(message, "delta") and kind is not Vector:
        dense = message.delta.dense()
        assert (dense.shape, dense.dtype) == (LIKE.shape, LIKE.dtype)
        assert torch.isfinite(dense).all()
    assert encode(message) == data  # the encoding is unique
    return True


@st.composite
def mutated(draw: st.DrawFn) -> tuple[type, bytes]:
    """A valid message with bytes changed, dropped, inserted or put in the place of others."""
    kind, honest = draw(st.sampled_from(SAMPLES))
    data = bytearray(honest)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        how = draw(st.sampled_from(["change", "drop", "insert", "repeat"]))
        if how == "change" and at < len(data):
            data[at] = draw(st.integers(0, 255))
        elif how == "drop":
            del data[at : at + draw(st.integers(1, 8))]
        elif how == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=8))
        else:
            data[at : at + 4] = draw(st.sampled_from([b"\xff" * 4, b"\0" * 4, b"\0\0\0\x80"]))
    return kind, bytes(data)


KINDS = st.sampled_from([Vector, Squeezed, Everything, Several])


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=300), kind=KINDS)
def test_random_bytes(data: bytes, kind: type) -> None:
    receive(data, kind)
    receive(b"TF\x01" + data, kind)


@settings(max_examples=500, deadline=None)
@given(case=mutated())
def test_mutated_messages(case: tuple[type, bytes]) -> None:
    kind, data = case
    receive(data, kind)


def test_every_valid_message_is_accepted() -> None:
    assert all(receive(data, kind) for kind, data in SAMPLES)


@pytest.mark.slow
def test_a_hundred_thousand_random_cases() -> None:
    rng = np.random.default_rng(2025)
    for _ in range(100_000):
        kind, honest = SAMPLES[rng.integers(len(SAMPLES))]
        known = int(rng.integers(30))  # so many of the first bytes are right
        receive(honest[:known] + rng.bytes(int(rng.integers(300))), kind)


@pytest.mark.slow
def test_a_hundred_thousand_cases() -> None:
    """Plain loops: faster than drawing each case, and the seed says which one failed."""
    rng = np.random.default_rng(2024)
    taken = refused = 0
    for _ in range(120_000):
        kind, honest = SAMPLES[rng.integers(len(SAMPLES))]
        data = bytearray(honest)
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(len(data)))
            choice = rng.integers(5)
            if choice == 0:
                data[at] ^= 1 << int(rng.integers(8))
            elif choice == 1:
                data[at] = int(rng.integers(256))
            elif choice == 2:
                del data[at : at + int(rng.integers(1, 9))]
            elif choice == 3:
                data[at:at] = rng.bytes(int(rng.integers(1, 9)))
            else:
                data[at : at + 4] = b"\xff" * 4
            if not data:
                break
        if receive(bytes(data), kind):
            taken += 1
        else:
            refused += 1
    assert taken > 10_000
    assert refused > 10_000


@pytest.mark.slow
@settings(max_examples=100_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=mutated())
def test_a_hundred_thousand_mutations_found_by_hypothesis(case: tuple[type, bytes]) -> None:
    kind, data = case
    receive(data, kind)


def test_a_message_of_countless_parts_is_refused_at_once() -> None:
    d = MOST_PARTS + 1
    head = b"TF\x01\x01\x05delta\x03\0" + struct.pack("<I", d)
    data = head + struct.pack("<BII", 0, 1, 1) * d + bytes(4 * d)
    with pytest.raises(WireError, match=f"{d} parts cannot make up d = {d}"):
        decode(data, Squeezed, like=torch.zeros(d))


@pytest.mark.parametrize("count", [4, 2**10, 2**31, 2**32 - 1])
def test_a_few_numbers_that_are_not_there_take_no_memory(count: int) -> None:
    kind, honest = next(sample for sample in SAMPLES if sample[0] is Several)
    at = honest.index(b"steps\x04") + 6
    tracemalloc.start()
    assert not receive(honest[:at] + struct.pack("<I", count) + honest[at + 4 :], kind)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize("at", range(4, 30))
def test_a_declared_length_takes_no_memory(at: int) -> None:
    """Four bytes of ones anywhere in the head: nothing of that size is ever made."""
    for kind, honest in SAMPLES:
        data = honest[:at] + b"\xff" * 4 + honest[at + 4 :]
        tracemalloc.start()
        receive(data, kind)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1_000_000
