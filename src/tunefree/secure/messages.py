"""The messages of a secure sum as bytes, and back: one encoding of each, and all of it is checked.

    message  "TFS", version (1 byte), kind (1), then the fields in their order
    int      8 bytes, below 2^63
    float    8 bytes, finite and not negative
    bytes    length (4), then the bytes; str the same, in printable ASCII
    tuple    count (4), then the items; a NamedTuple: its fields in their order

Everything is big-endian, but for the words of an upload.
"""

from __future__ import annotations

import hashlib
import math
import struct
from functools import cache
from typing import Any, NamedTuple, NoReturn, TypeAlias, TypeVar, get_args, get_type_hints

from tunefree.errors import WireError

M = TypeVar("M")
Ids: TypeAlias = tuple[int, ...]
HEAD, VERSION = b"TFS", 1
PREKEYS, SHARES, UPLOAD, AGREE, OPEN = 2, 5, 7, 9, 10  # the page's steps that a node answers
LEAST = 3  # clients in a sum: of two, each would learn the other's upload
SHARE = 66  # bytes of a share
DEGREE = 150  # of the graph, and even


class Turn(NamedTuple):
    """Which sum a message belongs to; `attempt` counts how often its round was repeated."""

    run: str
    round: int
    attempt: int


class Prekey(NamedTuple):
    """2. A client's public one-time keys."""

    node: int
    number: int
    seal: bytes
    mask: bytes
    signature: bytes


class Prekeys(NamedTuple):
    """2. A batch, from a node."""

    roster: bytes
    run: str
    keys: tuple[Prekey, ...]


class Terms(NamedTuple):
    """8. At most `clients` in a sum, the noise's z, and how many numbers have which bound."""

    clients: int
    noise: float
    counts: Ids
    bounds: tuple[float, ...]


class Invite(NamedTuple):
    """3. To all clients of the cohort, the same bytes."""

    turn: Turn
    roster: bytes
    terms: Terms
    cohort: tuple[Prekey, ...]


class Request(NamedTuple):
    """6 sharers and boxes for one client; 9 survivors; 10 who has signed, and the signatures."""

    turn: Turn
    step: int
    nodes: Ids
    parts: tuple[bytes, ...]


class Reply(NamedTuple):
    """5 H(b) and a box per peer; 7 words; 9 a signature; 10 a share per sharer in the group."""

    turn: Turn
    step: int
    node: int
    parts: tuple[bytes, ...]
    signature: bytes

    def __repr__(self) -> str:
        return f"<step {self.step} of client {self.node}>"  # shares are not shown


class Saved(NamedTuple):
    """9. An attempt as the server keeps it on disk from its list of survivors on."""

    invite: bytes
    down: bytes
    sharers: Ids
    promises: tuple[bytes, ...]
    survivors: Ids
    words: bytes


KINDS: tuple[Any, ...] = (Prekeys, Invite, Request, Reply, Saved)


def encode(message: NamedTuple) -> bytes:
    return HEAD + bytes([VERSION, KINDS.index(type(message))]) + written(message)


def written(value: Any) -> bytes:
    if isinstance(value, int):
        return number(value)
    if isinstance(value, float):
        return struct.pack(">d", value)
    if isinstance(value, str):
        value = value.encode("ascii")
    if isinstance(value, bytes):
        return struct.pack(">I", len(value)) + value
    count = b"" if hasattr(value, "_fields") else struct.pack(">I", len(value))
    return count + b"".join(map(written, value))


def decode(data: bytes, kind: type[M], most: int) -> M:
    """The message of that kind, of at most so many bytes; anything else is a WireError."""
    name = kind.__name__.lower()
    if len(data) > most:
        raise WireError(f"a secure {name} has {len(data)} bytes; at most {most} are allowed")
    start = HEAD + bytes([VERSION, KINDS.index(kind)])
    if data[: len(start)] != start:
        raise WireError(f"what came is not a secure {name} of version {VERSION}")
    reader = Reader(data[len(start) :], name)
    message: M = reader.read(kind)
    if reader.left:
        reader.refuse("bytes are left over")
    return message


class Reader:
    """Values taken from the front of bytes."""

    def __init__(self, data: bytes, name: str) -> None:
        self._data, self._at, self._name = data, 0, name

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def refuse(self, reason: str) -> NoReturn:
        raise WireError(f"a secure {self._name} is malformed: {reason}")

    def take(self, count: int) -> bytes:
        if count > self.left:
            self.refuse("it is too short")
        self._at += count
        return self._data[self._at - count : self._at]

    def read(self, hint: Any) -> Any:
        if hasattr(hint, "_fields"):
            return hint(*map(self.read, hints(hint)))
        if hint is int:
            value = int.from_bytes(self.take(8), "big")
            return value if value < 2**63 else self.refuse("an integer is too large")
        if hint is float:
            (real,) = struct.unpack(">d", self.take(8))
            ok = math.isfinite(real) and math.copysign(1, real) > 0
            return real if ok else self.refuse("a number is negative or not finite")
        (count,) = struct.unpack(">I", self.take(4))
        if hint is bytes:
            return self.take(count)
        if hint is str:
            text = self.take(count).decode("latin-1")
            return text if text.isascii() and text.isprintable() else self.refuse("a name is odd")
        return tuple(self.read(get_args(hint)[0]) for _ in range(count))


@cache
def hints(kind: Any) -> tuple[Any, ...]:
    return tuple(get_type_hints(kind).values())


def number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def ids(nodes: Ids) -> bytes:
    return b"".join(map(number, nodes))


def digest(data: bytes | memoryview) -> bytes:
    return hashlib.sha256(data).digest()


def framed(purpose: str, *parts: bytes) -> bytes:
    """What is signed or derived from: no two purposes or lists of parts give the same bytes."""
    return b"tunefree.secure.1/" + purpose.encode("ascii") + written(parts)
