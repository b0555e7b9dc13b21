"""A job and its reply as Flower records: an envelope of a few words, and our codec's bytes.

    envelope  run, client, N, stage, t, exchange, and ack: the client's last accepted reply;
              with local epochs also K, the mean of all clients' local steps; with privacy clip
    reply     run, client, t, exchange, n (its samples), drawn; or lost = true and nothing else;
              with privacy and secure sums n = 1 and drawn = 0; with the latter exponents

The message itself is exactly the bytes of `wire.encode`; nothing is pickled. Flower sends every
record, array and chunk in a request of its own, so a small message is put into the envelope, which
makes three objects; a large one is an Array, six objects, stored once for all clients that get it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, get_type_hints

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from tunefree.errors import WireError
from tunefree.fleet.job import Key

ENVELOPE, MESSAGE, DATA = "tunefree", "message", "bytes"
MOST = 2**31
SMALL = 2**18  # bytes that are put into the envelope


class Envelope(NamedTuple):
    """What is sent with a download."""

    run: str
    client: int
    N: int
    stage: str
    t: int
    exchange: int
    ack: str
    K: int = 0  # sent only if local work is given in epochs
    clip: float = 0.0  # sent only with privacy: the norm at which the upload is cut


class Answer(NamedTuple):
    """What is sent with an upload."""

    run: str
    client: int
    t: int
    exchange: int
    n: int
    drawn: int
    lost: bool
    exponents: str = ""  # with secure sums, of the largest number in each field


def key_text(key: Key | None) -> str:
    """A job's key as text; empty for None."""
    return "" if key is None else ".".join(map(str, key))


def pack(words: Envelope | Answer | None, data: bytes | None) -> RecordDict:
    """The records of a Flower message; either part may be None."""
    fields: dict[str, Any] = {}
    if words is not None:
        usual = words._field_defaults
        fields = {key: value for key, value in words._asdict().items() if usual.get(key) != value}
    if data is not None and len(data) <= SMALL:
        return RecordDict({ENVELOPE: ConfigRecord({**fields, DATA: data})})
    records: dict[str, Any] = {ENVELOPE: ConfigRecord(fields)} if fields else {}
    if data is not None:
        array = Array(dtype="uint8", shape=(len(data),), stype="tunefree", data=data)
        records[MESSAGE] = ArrayRecord({DATA: array})
    return RecordDict(records)


def unpack(content: RecordDict, kind: type[Any], sender: str) -> Any:
    """The envelope in a message; anything else is a WireError."""
    record = content.get(ENVELOPE)
    words = dict(record) if isinstance(record, ConfigRecord) else {}
    words.pop(DATA, None)
    needed = set(kind._fields) - set(kind._field_defaults)
    if not needed <= set(words) <= set(kind._fields):
        raise WireError(f"{sender} sent no envelope of ours")
    hints = get_type_hints(kind)
    for field, value in words.items():
        if type(value) is not (wanted := hints[field]):
            raise WireError(f"{sender} sent an envelope whose {field} is not a {wanted.__name__}")
    return kind(**words)


def data_in(content: RecordDict, sender: str) -> bytes:
    """The bytes of the message."""
    record = content.get(MESSAGE)
    if isinstance(record, ArrayRecord) and list(record) == [DATA]:
        return bytes(record[DATA].data)
    words = content.get(ENVELOPE)
    data = words.get(DATA) if isinstance(words, ConfigRecord) else None
    if not isinstance(data, bytes):
        raise WireError(f"{sender} sent no message of ours")
    return data
