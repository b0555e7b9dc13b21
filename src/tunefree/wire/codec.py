"""A message as bytes, and back. Nothing that arrives is executed, and everything is checked.

    message     "TF", version (1 byte), number of fields (1), then the fields in their order
    field       length of its name (1), name, kind (1), then by kind:
    int         4 bytes, two's complement
    float       4 bytes
    numbers     how many (4), then 4 bytes each
    vector      type (1), length d (4), then d elements
    compressed  type (1), number of parts (4); per part its kind (1), d (4) and a parameter (4):
                the number of values sent, of levels, or of bits per element; then, for all parts
                together, the numbers and the bits of `Compressed.to_bytes`

Everything is little-endian. The receiver knows the kind of every field, d and the type.
"""

from __future__ import annotations

import math
import struct
from typing import Any, NoReturn, TypeVar, get_origin, get_type_hints

import numpy as np
import torch

from tunefree.core import Message, Numbers, Vec
from tunefree.errors import WireError
from tunefree.wire.compressed import (
    GAUSSIAN,
    MOST_LEVELS,
    MOST_PARTS,
    SEED_BITS,
    Bits,
    Compressed,
    Levels,
    Part,
    Picked,
    RotatedLevels,
    Seeded,
    Signs,
    Whole,
    from_bits,
    pack,
    unpack,
    width,
)

M = TypeVar("M", bound=Message)

MAGIC, VERSION = b"TF", 1
KINDS: dict[type, int] = {int: 0, float: 1, torch.Tensor: 2, Compressed: 3, tuple: 4}
TYPES: dict[torch.dtype, int] = {torch.float32: 0, torch.float64: 1}
PARTS: dict[type, int] = {Whole: 0, Picked: 1, Seeded: 2, Signs: 3, Levels: 4, RotatedLevels: 5}
PART = struct.Struct("<BII")
MOST_LETTERS = 255  # of a field's name


def encode(message: Message) -> bytes:
    """The message as bytes.

    >>> from tunefree.core import OpeningUp
    >>> len(encode(OpeningUp(torch.zeros(10))))
    55
    """
    head = MAGIC + bytes([VERSION, len(message)])
    return head + b"".join(frame + payload for frame, payload in encoded_fields(message))


def encoded_fields(message: Message) -> list[tuple[bytes, bytes]]:
    """Per field its header and its payload; `bits` counts the payload."""
    fields = []
    for name, value in zip(message._fields, message, strict=True):
        if not name.isascii() or len(name) > MOST_LETTERS:
            raise WireError(f"field `{name}` needs a name of at most {MOST_LETTERS} ASCII letters")
        if type(value) not in KINDS:
            raise WireError(f"field `{name}` is a {type(value).__name__}, which cannot be sent")
        frame = bytes([len(name)]) + name.encode("ascii") + bytes([KINDS[type(value)]])
        head, payload = encoded(name, value)
        fields.append((frame + head, payload))
    return fields


def encoded(name: str, value: Vec | Compressed | Numbers | float) -> tuple[bytes, bytes]:
    if isinstance(value, tuple):
        for number in value:
            if type(number) is not float:
                raise WireError(f"field `{name}` contains {number!r}; it must contain only floats")
        each = [encoded(name, number)[1] for number in value]
        return struct.pack("<I", len(each)), b"".join(each)
    if isinstance(value, torch.Tensor | Compressed):
        numbers = value if isinstance(value, torch.Tensor) else value.parts[0].numbers
        dtype = numbers.dtype
        if numbers.dim() != 1 or dtype not in TYPES:
            raise WireError(
                f"field `{name}` is not a flat vector of float32 or float64, but {dtype} "
                f"of shape {tuple(numbers.shape)}"
            )
    if isinstance(value, torch.Tensor):
        head = struct.pack("<BI", TYPES[dtype], value.numel())
        return head, Compressed((Whole(value),)).to_bytes()
    if isinstance(value, Compressed):
        parts = [PART.pack(PARTS[type(part)], part.d, parameter(part)) for part in value.parts]
        return struct.pack("<BI", TYPES[dtype], len(parts)) + b"".join(parts), value.to_bytes()
    if isinstance(value, int) and -(2**31) <= value < 2**31:
        return b"", struct.pack("<i", value)
    if isinstance(value, float) and (math.isnan(value) or value == rounded(value)):
        return b"", struct.pack("<f", value)
    raise WireError(f"field `{name}` = {value!r} does not fit into 32 bits; round it first")


def rounded(value: float) -> float:
    """The nearest 32-bit float."""
    return torch.tensor(value, dtype=torch.float32).item()


def parameter(part: Part) -> int:
    if isinstance(part, RotatedLevels):
        return part.width
    return part.s if isinstance(part, Levels) else part.numbers.numel()


def decode(data: bytes, kind: type[M], *, like: Vec, client: int | None = None) -> M:
    """The message of that kind, its vectors of the length, type and device of `like`.

    `client` is the sender, None the server. Anything but such a message is a WireError.
    """
    reader = Reader(data, "the server" if client is None else f"client {client}")
    if reader.take(2) != MAGIC:
        reader.refuse("it does not start like a message")
    version, count = reader.take(2)
    if version != VERSION:
        reader.refuse(f"version {version} is not {VERSION}")
    hints = get_type_hints(kind)
    if count != len(hints):
        reader.refuse(f"{count} fields came instead of {len(hints)}")
    values = [decoded_field(reader, name, hint, like) for name, hint in hints.items()]
    reader.field = "message"
    if reader.left:
        reader.refuse(f"{reader.left} bytes are left over")
    message: M = kind(*values)
    return message


def most_bytes(kind: type[Message], like: Vec) -> int:
    """No message of that kind is longer, whatever its compressor and its numbers.

    >>> from tunefree.core import OpeningUp
    >>> len(encode(OpeningUp(torch.zeros(10)))) < most_bytes(OpeningUp, torch.zeros(10)) < 2**21
    True
    """
    d, vectors = like.numel(), len(get_type_hints(kind))
    parts = PART.size + 2 * SEED_BITS // 8
    return 2**16 + vectors * (d * (like.element_size() + 4) + parts * min(d, MOST_PARTS) + 2**10)


class Reader:
    """Bytes taken from the front; a complaint names the sender, the field and the reason."""

    def __init__(self, data: bytes, sender: str) -> None:
        self._data, self._at = memoryview(data), 0
        self._sender, self.field = sender, "message"

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        if count > self.left:
            self.refuse(f"{count - self.left} bytes are missing")
        self._at += count
        return bytes(self._data[self._at - count : self._at])

    def numbers(self, count: int, dtype: torch.dtype) -> Vec:
        code = "<f4" if dtype == torch.float32 else "<f8"
        array = np.frombuffer(self.take(count * dtype.itemsize), code)
        if not np.isfinite(array).all():
            self.refuse("a number is not finite")
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=True))

    def refuse(self, reason: str) -> NoReturn:
        raise WireError(f"{self._sender} sent an unusable `{self.field}`: {reason}")


def decoded_field(reader: Reader, name: str, hint: type, like: Vec) -> Any:
    reader.field = name
    said = reader.take(reader.take(1)[0])
    if said != name.encode("ascii"):
        reader.refuse(f"a field {said[:40]!r} came in its place")
    (number,) = reader.take(1)
    hint = get_origin(hint) or hint
    if number != KINDS[hint]:
        reader.refuse(f"kind {number} is not {KINDS[hint]}, a {hint.__name__}")
    if hint is int:
        return int(struct.unpack("<i", reader.take(4))[0])
    if hint is float:
        return reader.numbers(1, torch.float32).item()
    if hint is tuple:
        (count,) = struct.unpack("<I", reader.take(4))
        return tuple(reader.numbers(count, torch.float32).tolist())
    code, count = struct.unpack("<BI", reader.take(5))
    if code != TYPES[like.dtype]:
        reader.refuse(f"type {code} is not {TYPES[like.dtype]}, {like.dtype}")
    if hint is Compressed:
        return compressed(reader, count, like)
    if count != like.numel():
        reader.refuse(f"length {count} is not d = {like.numel()}")
    return reader.numbers(count, like.dtype).to(like.device)


def compressed(reader: Reader, count: int, like: Vec) -> Compressed:
    """All that is declared is checked before anything is built from it."""
    if not 1 <= count <= min(like.numel(), MOST_PARTS):
        reader.refuse(f"{count} parts cannot make up d = {like.numel()}")
    heads = list(PART.iter_unpack(reader.take(count * PART.size)))
    if (total := sum(d for _, d, _ in heads)) != like.numel():
        reader.refuse(f"length {total} is not d = {like.numel()}")
    sizes = [declared_sizes(reader, *head) for head in heads]
    numbers = reader.numbers(sum(n for n, _ in sizes), like.dtype).to(like.device)
    wanted = sum(extra for _, extra in sizes)
    bits = unpack(reader.take(-(-wanted // 8)))
    if bits[wanted:].any():
        reader.refuse("the padding bits of its last byte are not zero")
    parts, at, start = [], 0, 0
    for (kind, d, parameter), (n, extra) in zip(heads, sizes, strict=True):
        own, beside = numbers[at : at + n], bits[start : start + extra]
        parts.append(decoded_part(reader, kind, d, parameter, own, beside))
        at, start = at + n, start + extra
    return Compressed(tuple(parts))


def declared_sizes(reader: Reader, kind: int, d: int, parameter: int) -> tuple[int, int]:
    """How many numbers and how many bits a part declares."""
    most = {0: d, 1: d, 2: d, 3: 1, 4: MOST_LEVELS, 5: max(GAUSSIAN)}.get(kind, 0)
    if d < 1 or not 1 <= parameter <= most or (kind == 0 and parameter != d):
        reader.refuse(f"no part is of kind {kind} with {d} elements and parameter {parameter}")
    return {
        0: (d, 0),
        1: (parameter, parameter * width(d)),
        2: (parameter, SEED_BITS),
        3: (1, d),
        4: (1, d * (1 + width(parameter + 1))),
        5: (1, SEED_BITS + d * parameter),
    }[kind]


def decoded_part(
    reader: Reader, kind: int, d: int, parameter: int, numbers: Vec, bits: Bits
) -> Part:
    if kind == PARTS[Whole]:
        return Whole(numbers)
    if kind == PARTS[Seeded]:
        return Seeded(d, int.from_bytes(pack([bits]), "little"), numbers)
    if kind in (PARTS[Signs], PARTS[Levels], PARTS[RotatedLevels]) and numbers[0] < 0:
        reader.refuse("a scale is negative")
    if kind == PARTS[Signs]:
        return Signs(numbers, torch.from_numpy(bits.astype(bool)).to(numbers.device))
    if kind == PARTS[RotatedLevels]:
        seed = int.from_bytes(pack([bits[:SEED_BITS]]), "little")
        codes = from_bits(bits[SEED_BITS:], parameter).astype(np.uint8)
        part = RotatedLevels(parameter, seed, numbers, torch.from_numpy(codes).to(numbers.device))
        if part.most > torch.finfo(numbers.dtype).max:
            reader.refuse(f"a scale is too large for {d} elements")
        return part
    if kind == PARTS[Picked]:
        index = from_bits(bits, width(d)) if d > 1 else np.zeros(1, np.int64)
        if index[-1] >= d or (np.diff(index) <= 0).any():
            reader.refuse(f"positions do not rise from 0 to at most {d - 1}")
        return Picked(d, torch.from_numpy(index).to(numbers.device), numbers)
    signed = from_bits(bits, 1 + width(parameter + 1))
    levels = signed >> 1
    if (levels > parameter).any() or (signed == 1).any():
        reader.refuse(f"a level is above {parameter}, or zero with a sign")
    levels = np.where(signed & 1, -levels, levels).astype(np.int32)
    return Levels(parameter, numbers, torch.from_numpy(levels).to(numbers.device))
