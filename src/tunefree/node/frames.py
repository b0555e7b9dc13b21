"""The messages between a node and its worker: a few words as JSON, and bytes."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

SIZE = struct.Struct("!Q")


class Frame(NamedTuple):
    words: dict[str, Any]
    parts: list[bytes]


def write(to: socket.socket, words: dict[str, Any], parts: Sequence[bytes] = ()) -> None:
    head = json.dumps({"words": words, "sizes": [len(part) for part in parts]}).encode()
    to.sendall(SIZE.pack(len(head)) + head)
    for part in parts:
        to.sendall(part)


def read(source: socket.socket) -> Frame | None:
    """The next frame, or None if the other side has closed the connection."""
    size = exactly(source, SIZE.size)
    head = size and exactly(source, SIZE.unpack(size)[0])
    if not head:
        return None
    tree = json.loads(head)
    parts = []
    for length in tree["sizes"]:
        part = exactly(source, length)
        if part is None:
            return None
        parts.append(part)
    return Frame(tree["words"], parts)


def exactly(source: socket.socket, length: int) -> bytes | None:
    data = bytearray(length)
    view, filled = memoryview(data), 0
    while filled < length:
        try:
            count = source.recv_into(view[filled:])
        except ConnectionError:
            return None
        if not count:
            return None
        filled += count
    return bytes(data)
