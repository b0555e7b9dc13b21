"""The trips of a secure sum as Flower records, and what a node's own config says about them.

to a client    record "secure": step, data (bytes of `tunefree.secure`), and by step
                 2  run, count: a batch of prekeys is asked for
                 5  the job beside it, as without secure sums
                 7  exponents, which all clients use
to the server  a message of bytes; in 5 beside the words of an answer, without numbers of samples
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flwr.app import ConfigRecord, RecordDict

from tunefree.errors import ConfigError, WireError
from tunefree.secure.messages import digest, framed

SECURE, ROSTER = "secure", "roster"  # a record; a key of a node's config
EXCHANGES = 8  # more than a round has


def trip(step: int, data: bytes = b"", **more: Any) -> ConfigRecord:
    return ConfigRecord({"step": step, "data": data, **more})


def taken(content: RecordDict, name: str, kind: type) -> Any:
    """A value that the server sent for a secure sum."""
    record = content.get(SECURE)
    value = record.get(name) if isinstance(record, ConfigRecord) else None
    if type(value) is not kind:
        raise WireError(f"the server sent no {name} for a secure sum")
    return value


def number_of(t: int, exchange: int) -> int:
    """The protocol's round: no two sums of one exchange of a step."""
    return EXCHANGES * (t + 1) + exchange


def work_hash(words: Sequence[object], down: bytes) -> bytes:
    """What a client was given to work on: the words that all clients get, and the download."""
    return digest(framed("work", repr(tuple(words)).encode(), down))


def bound(work: bytes, exponents: Sequence[int]) -> bytes:
    """What masks are bound to: who was told another scale has masks that never cancel."""
    return work + b" ".join(str(e).encode() for e in exponents)


def check_node(config: Mapping[str, Any], secure: bool) -> None:
    """Refuse a run that is not as this node's own config demands, before anything is answered."""
    if secure and ROSTER not in config:
        raise ConfigError(
            "this run has secure sums, and this node has no roster",
            'start it with --node-config \'... roster="FILE" roster-key="FILE" minimum=N\'',
        )
    if ROSTER in config and not secure:
        raise ConfigError(
            "this node has a roster, and takes part in secure sums only",
            "set secure = true in the run config, or start the node without its roster",
        )
