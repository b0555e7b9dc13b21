"""What a secure sum sends beside the uploads: counted from messages of the real form."""

from __future__ import annotations

from functools import lru_cache

from tunefree.secure.messages import (
    AGREE,
    DEGREE,
    OPEN,
    SHARE,
    SHARES,
    UPLOAD,
    Invite,
    Prekey,
    Prekeys,
    Reply,
    Request,
    Terms,
    Turn,
    encode,
)

BOX, SIGNATURE, KEY = 2 * SHARE + 16, bytes(64), bytes(32)


@lru_cache(maxsize=64)
def beside(clients: int, survivors: int, fields: int) -> tuple[int, int, int]:
    """Of each client of a cohort: further messages each way, bits down, bits up."""
    turn, group = Turn("0" * 16, 0, 0), min(clients, DEGREE + 1)
    prekey, nodes = Prekey(0, 0, KEY, KEY, SIGNATURE), tuple(range(survivors))
    terms = Terms(clients, 0.0, (0,) * fields, (0.0,) * fields)
    boxes, opened = (bytes(BOX),) * (group - 1), (bytes(SHARE),) * min(survivors, group)
    down = (
        Invite(turn, KEY, terms, (prekey,) * clients),
        Request(turn, UPLOAD, tuple(range(clients)), boxes),
        Request(turn, AGREE, nodes, ()),
        Request(turn, OPEN, nodes, (SIGNATURE,) * survivors),
    )
    up = (
        Prekeys(KEY, turn.run, (prekey,)),
        Reply(turn, SHARES, 0, (KEY, *boxes), SIGNATURE),
        Reply(turn, UPLOAD, 0, (b"",), SIGNATURE),
        Reply(turn, AGREE, 0, (SIGNATURE,), SIGNATURE),
        Reply(turn, OPEN, 0, opened, SIGNATURE),
    )
    bits_down, bits_up = (
        8 * sum(len(encode(each)) for each in each_way) for each_way in (down, up)
    )
    return 3, bits_down, bits_up
