"""The messages between a node and its worker: a few words as JSON, and bytes; no pickle."""

from __future__ import annotations

import json
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple


class Frame(NamedTuple):
    words: dict[str, Any]
    parts: list[bytes]


def write(to: Connection, words: dict[str, Any], parts: Sequence[bytes]) -> None:
    to.send_bytes(json.dumps([words, len(parts)]).encode())
    for part in parts:
        to.send_bytes(part)


def read(source: Connection) -> Frame | None:
    """The next frame, or None if the other side has closed the connection."""
    try:
        words, count = json.loads(source.recv_bytes())
        return Frame(words, [source.recv_bytes() for _ in range(count)])
    except (EOFError, ConnectionError):
        return None
