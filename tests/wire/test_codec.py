"""Messages as bytes: bit-identical there and back, and malformed ones are refused by field."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.specs import SPECS, every_spec, layouts, vectors
from tunefree.core import Numbers, Vec, stream
from tunefree.errors import WireError
from tunefree.wire import Compressed, bits, decode, encode, from_spec
from tunefree.wire.codec import encoded_fields
from tunefree.wire.compressed import RotatedLevels


class Vector(NamedTuple):
    delta: Vec


class Squeezed(NamedTuple):
    delta: Compressed


class Scalars(NamedTuple):
    t: int
    weight: float


class Everything(NamedTuple):
    theta: Vec
    t: int
    delta: Compressed
    weight: float


class Several(NamedTuple):
    x: Vec
    steps: Numbers
    beta: float


class Greek(NamedTuple):
    θ: float


class Nothing(NamedTuple):
    pass


FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


def raw(v: Vec) -> bytes:
    return v.numpy().tobytes()


def squeezed(spec: str, d: int = 40, sizes: list[int] | None = None) -> Squeezed:
    v = torch.from_numpy(stream(1, "v").normal(size=d)).float()
    return Squeezed(from_spec(spec, sizes)(v, stream(1, "C")))


@every_spec
@settings(deadline=None)
@given(data=st.data(), v=vectors(), seed=st.integers(0, 2**32 - 1))
def test_compressed_there_and_back(spec: str, data: st.DataObject, v: Vec, seed: int) -> None:
    sent = from_spec(spec, data.draw(layouts(v.numel())))(v, stream(seed, "C"))
    back = decode(encode(Squeezed(sent)), Squeezed, like=v).delta
    assert [type(part) for part in back.parts] == [type(part) for part in sent.parts]
    assert raw(back.dense()) == raw(sent.dense())
    assert (back.bits, back.value_bits, back.to_bytes()) == (
        sent.bits,
        sent.value_bits,
        sent.to_bytes(),
    )


@settings(deadline=None)
@given(v=vectors(), t=st.integers(-(2**31), 2**31 - 1), weight=st.floats(width=32))
def test_all_kinds_there_and_back(v: Vec, t: int, weight: float) -> None:
    sent = from_spec("top:0.3")(v, stream(0, "unused"))
    weight = weight if abs(weight) < 1e30 else -0.0
    message = Everything(v, t, sent, weight)
    back = decode(encode(message), Everything, like=v, client=3)
    assert type(back) is Everything
    assert raw(back.theta) == raw(v)
    assert raw(back.delta.dense()) == raw(sent.dense())
    assert (back.t, struct.pack("<d", back.weight)) == (t, struct.pack("<d", weight))
    assert encode(back) == encode(message)


@settings(deadline=None)
@given(v=vectors(), steps=st.lists(FINITE, max_size=9).map(tuple))
def test_a_few_numbers_there_and_back(v: Vec, steps: Numbers) -> None:
    message = Several(v, steps, 0.5)
    back = decode(encode(message), Several, like=v)
    assert type(back.steps) is tuple
    assert [struct.pack("<d", number) for number in back.steps] == [
        struct.pack("<d", number) for number in steps
    ]
    assert {type(number) for number in back.steps} <= {float}
    assert encode(back) == encode(message)
    (_, (frame, payload), _) = encoded_fields(message)
    assert (len(frame), 8 * len(payload)) == (1 + 5 + 1 + 4, bits(message._replace(x=v[:0])) - 32)


def test_the_bytes_are_those_of_the_format() -> None:
    frame = b"TF\x01\x01\x05delta"
    values = struct.pack("<2f", 1.5, -2)
    assert encode(Vector(torch.tensor([1.5, -2]))) == frame + b"\x02\0\x02\0\0\0" + values
    sent = from_spec("top:0.4")(torch.tensor([0, 1.5, 0, 0, -2.0]), stream(0, "unused"))
    parts = b"\x03\0\x01\0\0\0" + b"\x01\x05\0\0\0\x02\0\0\0"
    assert encode(Squeezed(sent)) == frame + parts + values + bytes([1 + (4 << 3)])
    rotated = RotatedLevels(2, 7, torch.tensor([1.5]), torch.tensor([0, 1, 2, 3]).byte())
    part = b"\x03\0\x01\0\0\0" + b"\x05\x04\0\0\0\x02\0\0\0" + values[:4]
    assert encode(Squeezed(Compressed((rotated,)))) == frame + part + b"\x07\0\0\0" + b"\xe4"
    assert encode(Scalars(-2, 0.5)) == b"".join(
        [b"TF\x01\x02", b"\x01t\0", b"\xfe\xff\xff\xff", b"\x06weight\x01", b"\0\0\0\x3f"]
    )
    assert encode(Several(torch.zeros(0), (0.5, -2.0), 0.5)) == b"".join(
        [
            b"TF\x01\x03",
            b"\x01x\x02\0\0\0\0\0",
            b"\x05steps\x04",
            b"\x02\0\0\0",
            b"\0\0\0\x3f",
            b"\0\0\0\xc0",
            b"\x04beta\x01",
            b"\0\0\0\x3f",
        ]
    )
    assert encode(Nothing()) == b"TF\x01\x00"
    assert decode(b"TF\x01\x00", Nothing, like=torch.zeros(2)) == ()


@every_spec
def test_a_network_there_and_back(spec: str) -> None:
    sent = squeezed(spec, 21_840, [250, 10, 5000, 20, 16_000, 50, 500, 10])
    back = decode(encode(sent), Squeezed, like=torch.zeros(21_840))
    assert raw(back.delta.dense()) == raw(sent.delta.dense())


@every_spec
def test_the_payload_is_what_bits_counts(spec: str) -> None:
    message = squeezed(spec, 40, [1, 2, 17, 20])
    ((_, payload),) = encoded_fields(message)
    assert 0 <= 8 * len(payload) - bits(message) <= 7


LIKE = torch.zeros(40)
GOOD = encode(Vector(torch.arange(40.0)))
TOP, SEEDED, SIGN, LEVEL, ROTATED = (
    encode(squeezed(spec)) for spec in ("top:0.1", "rand:0.1", "sign", "qsgd:4", "rotated:2")
)
SEVERAL = encode(Several(torch.arange(40.0), (1.0, 2.0, 3.0), 0.5))
STEPS = 4 + (1 + 1 + 1 + 5 + 160) + 1 + 5  # where the kind of `steps` is
HEAD = 4 + 1 + 5 + 1  # message, then length and name, then kind


def with_bytes(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


LIES: list[Any] = [
    (b"", Vector, "message", "2 bytes are missing"),
    (b"TG" + GOOD[2:], Vector, "message", "does not start like a message"),
    (with_bytes(GOOD, 2, b"\x02"), Vector, "message", "version 2 is not 1"),
    (with_bytes(GOOD, 3, b"\x02"), Vector, "message", "2 fields came instead of 1"),
    (with_bytes(GOOD, 5, b"gamma"), Vector, "delta", "a field b'gamma' came in its place"),
    (with_bytes(GOOD, 4, b"\xff"), Vector, "delta", "bytes are missing|in its place"),
    (with_bytes(GOOD, HEAD - 1, b"\x03"), Vector, "delta", "kind 3 is not 2, a Tensor"),
    (GOOD, Squeezed, "delta", "kind 2 is not 3, a Compressed"),
    (GOOD, Scalars, "message", "1 fields came instead of 2"),
    (with_bytes(GOOD, HEAD, b"\x01"), Vector, "delta", "type 1 is not 0, torch.float32"),
    (with_bytes(GOOD, HEAD, b"\x09"), Vector, "delta", "type 9 is not 0"),
    (with_bytes(GOOD, HEAD + 1, b"\x29"), Vector, "delta", "length 41 is not d = 40"),
    (with_bytes(GOOD, HEAD + 1, b"\xff" * 4), Vector, "delta", "length 4294967295 is not d = 40"),
    (GOOD[:-1], Vector, "delta", "1 bytes are missing"),
    (GOOD + b"\0", Vector, "message", "1 bytes are left over"),
    (GOOD[:-4] + struct.pack("<f", float("nan")), Vector, "delta", "a number is not finite"),
    (GOOD[:-4] + struct.pack("<f", float("inf")), Vector, "delta", "a number is not finite"),
    (encode(Scalars(1, float("-inf"))), Scalars, "weight", "a number is not finite"),
    (encode(Scalars(1, float("nan"))), Scalars, "weight", "a number is not finite"),
    (with_bytes(TOP, HEAD + 1, b"\0\0\0\0"), Squeezed, "delta", "0 parts cannot make up d = 40"),
    (with_bytes(TOP, HEAD + 1, b"\xff" * 4), Squeezed, "delta", "4294967295 parts cannot"),
    (with_bytes(TOP, HEAD + 1, b"\x28"), Squeezed, "delta", "bytes are missing"),
    (with_bytes(TOP, HEAD + 5, b"\x07"), Squeezed, "delta", "no part is of kind 7"),
    (with_bytes(TOP, HEAD + 6, b"\x29"), Squeezed, "delta", "length 41 is not d = 40"),
    (with_bytes(TOP, HEAD + 10, b"\0"), Squeezed, "delta", "40 elements and parameter 0"),
    (with_bytes(TOP, HEAD + 10, b"\x29"), Squeezed, "delta", "40 elements and parameter 41"),
    (with_bytes(TOP, HEAD + 10, b"\x05"), Squeezed, "delta", "bytes are missing"),
    (TOP[:-1] + bytes([TOP[-1] | 0xFC]), Squeezed, "delta", "positions do not rise"),
    (TOP[:-3] + b"\0\0\0", Squeezed, "delta", "positions do not rise"),
    (TOP[:-3] + b"\xff\xff\xff", Squeezed, "delta", "positions do not rise from 0 to at most 39"),
    (
        with_bytes(TOP, HEAD + 14, struct.pack("<f", float("nan"))),
        Squeezed,
        "delta",
        "a number is not finite",
    ),
    (with_bytes(SIGN, HEAD + 10, b"\x02"), Squeezed, "delta", "kind 3 .* parameter 2"),
    (LEVEL[:-1] + b"\xff", Squeezed, "delta", "a level is above 4"),
    (with_bytes(LEVEL, HEAD + 10, b"\0\0\x01"), Squeezed, "delta", "parameter 65536"),
    (LEVEL[:-20] + b"\x01" + b"\0" * 19, Squeezed, "delta", "or zero with a sign"),
    (with_bytes(SIGN, HEAD + 14, struct.pack("<f", -1)), Squeezed, "delta", "a scale is negative"),
    (with_bytes(LEVEL, HEAD + 14, struct.pack("<f", -1)), Squeezed, "delta", "scale is negative"),
    (SEEDED + b"\0", Squeezed, "message", "1 bytes are left over"),
    (with_bytes(ROTATED, HEAD + 10, b"\0"), Squeezed, "delta", "40 elements and parameter 0"),
    (with_bytes(ROTATED, HEAD + 10, b"\x05"), Squeezed, "delta", "kind 5 .* parameter 5"),
    (with_bytes(ROTATED, HEAD + 10, b"\xff" * 4), Squeezed, "delta", "parameter 4294967295"),
    (with_bytes(ROTATED, HEAD + 10, b"\x03"), Squeezed, "delta", "5 bytes are missing"),
    (with_bytes(ROTATED, HEAD + 10, b"\x01"), Squeezed, "message", "5 bytes are left over"),
    (with_bytes(ROTATED, HEAD + 6, b"\x29"), Squeezed, "delta", "length 41 is not d = 40"),
    (with_bytes(ROTATED, HEAD + 14, struct.pack("<f", -1)), Squeezed, "delta", "is negative"),
    (
        with_bytes(ROTATED, HEAD + 14, struct.pack("<f", float("nan"))),
        Squeezed,
        "delta",
        "a number is not finite",
    ),
    (
        with_bytes(ROTATED, HEAD + 14, struct.pack("<f", 1e38)),
        *(Squeezed, "delta", "a scale is too large for 40 elements"),
    ),
    (ROTATED[:-1], Squeezed, "delta", "1 bytes are missing"),
    (ROTATED + b"\0", Squeezed, "message", "1 bytes are left over"),
    (with_bytes(SEVERAL, STEPS, b"\x01"), Several, "steps", "kind 1 is not 4, a tuple"),
    (with_bytes(SEVERAL, STEPS, b"\x02"), Several, "steps", "kind 2 is not 4, a tuple"),
    (with_bytes(SEVERAL, STEPS, b"\x05"), Several, "steps", "kind 5 is not 4, a tuple"),
    (with_bytes(SEVERAL, STEPS + 1, b"\xff" * 4), Several, "steps", "bytes are missing"),
    (with_bytes(SEVERAL, STEPS + 1, b"\x04"), Several, "beta", "bytes are missing|in its place"),
    (with_bytes(SEVERAL, STEPS + 1, b"\x02"), Several, "beta", "bytes are missing|in its place"),
    (with_bytes(SEVERAL, STEPS + 1, b"\0"), Several, "beta", "bytes are missing|in its place"),
    (SEVERAL[: STEPS + 3], Several, "steps", "2 bytes are missing"),
    (SEVERAL[: STEPS + 5 + 10], Several, "steps", "2 bytes are missing"),
    (
        with_bytes(SEVERAL, STEPS + 5 + 4, struct.pack("<f", float("inf"))),
        Several,
        "steps",
        "a number is not finite",
    ),
    (
        with_bytes(SEVERAL, STEPS + 5 + 8, struct.pack("<f", float("nan"))),
        Several,
        "steps",
        "a number is not finite",
    ),
    (SEVERAL[:-4] + struct.pack("<f", float("nan")), Several, "beta", "a number is not finite"),
]


@pytest.mark.parametrize(("data", "kind", "field", "reason"), LIES, ids=range(len(LIES)))
def test_malformed_messages(data: bytes, kind: type, field: str, reason: str) -> None:
    for client, sender in ((17, "client 17"), (None, "the server")):
        with pytest.raises(WireError, match=f"^{sender} sent an unusable `{field}`: .*({reason})"):
            decode(data, kind, like=LIKE, client=client)


@pytest.mark.parametrize("spec", ["sign", "rotated:1"])
def test_bits_beyond_the_last_are_zero(spec: str) -> None:
    message = squeezed(spec, 5)
    data = encode(message)
    assert decode(data, Squeezed, like=torch.zeros(5)).delta.bits == message.delta.bits
    with pytest.raises(WireError, match="padding bits of its last byte"):
        decode(data[:-1] + bytes([data[-1] | 0x80]), Squeezed, like=torch.zeros(5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_rotated_tensor_that_is_taken_is_finite(dtype: torch.dtype) -> None:
    codes = torch.tensor([0, 1, 14, 15] * 10).byte()
    largest = torch.finfo(dtype).max / 2.733 / 40**0.5 / 1.002
    sent = Compressed((RotatedLevels(4, 3, torch.tensor([largest], dtype=dtype), codes),))
    back = decode(encode(Squeezed(sent)), Squeezed, like=LIKE.to(dtype)).delta
    assert torch.isfinite(back.dense()).all()
    more = Compressed((RotatedLevels(4, 3, torch.tensor([1.01 * largest], dtype=dtype), codes),))
    with pytest.raises(WireError, match="a scale is too large"):
        decode(encode(Squeezed(more)), Squeezed, like=LIKE.to(dtype))


@pytest.mark.parametrize("spec", SPECS)
def test_every_shorter_message_is_refused(spec: str) -> None:
    data = encode(squeezed(spec, 40, [7, 33]))
    for end in range(len(data)):
        with pytest.raises(WireError):
            decode(data[:end], Squeezed, like=LIKE)


def test_the_receiver_knows_the_precision() -> None:
    with pytest.raises(WireError, match=r"type 0 is not 1, torch.float64"):
        decode(GOOD, Vector, like=LIKE.double())


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Scalars(2**31, 0.0), "`t` = 2147483648 does not fit into 32 bits"),
        (Scalars(0, 0.1), "`weight` = 0.1 does not fit into 32 bits"),
        (Scalars(0, 1e300), "`weight` = 1e.300 does not fit into 32 bits"),
        (Scalars(True, 0.0), "`t` is a bool"),
        (Vector([1.0]), "`delta` is a list, which cannot be sent"),  # type: ignore[arg-type]
        (Vector(torch.zeros(2, 2)), r"`delta` is not a flat vector .* shape \(2, 2\)"),
        (Vector(torch.zeros(2, dtype=torch.int64)), "but torch.int64"),
        (Squeezed(from_spec("top:0.5")(torch.zeros(4).half(), stream(0, "C"))), "torch.float16"),
        (Several(LIKE, (0.5, 0.1), 0.5), "`steps` = 0.1 does not fit into 32 bits"),
        (Several(LIKE, (0.5, 1e300), 0.5), "`steps` = 1e.300 does not fit into 32 bits"),
        (Several(LIKE, (0.5, 1), 0.5), "`steps` contains 1; it must contain only floats"),
        (Several(LIKE, (True,), 0.5), "`steps` contains True;"),
        (Several(LIKE, ("0.5",), 0.5), "`steps` contains '0.5';"),  # type: ignore[arg-type]
        (Several(LIKE, (None,), 0.5), "`steps` contains None;"),  # type: ignore[arg-type]
        (Several(LIKE, [0.5], 0.5), "`steps` is a list, which cannot be sent"),  # type: ignore[arg-type]
        (Several(LIKE, Scalars(1, 0.5), 0.5), "`steps` is a Scalars, which cannot be sent"),
        (Greek(0.5), "`θ` needs a name of at most 255 ASCII letters"),
    ],
)
def test_what_cannot_be_sent(message: Any, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        encode(message)
