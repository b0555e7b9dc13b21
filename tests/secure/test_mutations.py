"""Messages that were changed anywhere are refused in one sentence, and change nothing."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")

from tests.secure.federation import DOWN, Federation
from tunefree.errors import TunefreeError, WireError
from tunefree.secure.messages import (
    Invite,
    Prekeys,
    Reply,
    Request,
    Terms,
    Turn,
    decode,
    encode,
    hints,
)
from tunefree.secure.server import Attempt, Pool

STEPS = ("join", "upload", "agree", "open")
MOST = 2**20


def mutated(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """Some bytes changed, lost, doubled or taken from another message."""
    new = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(new)) if new else 0
        size = rng.choice((1, 4, 8, 32, 148))
        other = rng.choice(others)
        start = rng.randrange(len(other))
        match rng.randrange(7):
            case 0:
                new[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                new[at : at + 1] = bytes([new[at] ^ 1 << rng.randrange(8)]) if new else b""
            case 2:
                del new[at:]
            case 3:
                del new[at : at + size]
            case 4:
                new[at:at] = new[at : at + size]
            case 5:
                new[at : at + size] = other[start : start + size]
            case 6:
                new[at : at + size] = rng.choice((b"\0", b"\xff", b"\x7f")) * size
    return bytes(new)


def requests(federation: Federation, attempt: Attempt, i: int) -> dict[str, bytes]:
    """What a node is told at each step, and its file before it: `NAME.sqlite`."""
    told = {}
    for name in STEPS:
        shutil.copy(federation.folder / f"{i}.sqlite", federation.folder / f"{name}.sqlite")
        if name == "join":
            told[name] = attempt.invite
        elif name == "upload":
            told[name] = attempt.deliver(DOWN)[i]
        else:
            told[name] = attempt.agree() if name == "agree" else attempt.open()
        getattr(federation, "open_sum" if name == "open" else name)(attempt)
    return told


def nodes_survive(tmp_path: Path, count: int) -> None:
    rng = random.Random(count)
    federation = Federation(tmp_path, 5)
    attempt = federation.attempt()
    i = federation.ids[2]
    told = requests(federation, attempt, i)
    path, accepted, refusals = tmp_path / f"{i}.sqlite", 0, list[str]()
    for name in STEPS:
        shutil.copy(tmp_path / f"{name}.sqlite", path)
        node, before = federation.open(i), path.read_bytes()
        more = (DOWN, federation.values[i]) if name == "upload" else ()
        kind: Any = Invite if name == "join" else Request
        for _ in range(count):
            data = mutated(rng, told[name], list(told.values()))
            try:
                getattr(node, name)(data, *more)
            except TunefreeError as error:
                refusals.append(str(error))
                assert path.read_bytes() == before
                continue
            well_formed(decode(data, kind, MOST), data, decode(told[name], kind, MOST), name)
            accepted += data != told[name]
            shutil.copy(tmp_path / f"{name}.sqlite", path)
            node = federation.open(i)
    assert accepted < count
    assert not any("\n" in sentence for sentence in refusals)


def well_formed(message: Any, data: bytes, told: Any, name: str) -> None:
    """What a server may say as well: another turn, other terms, another list."""
    assert encode(message) == data
    if name == "join":
        assert message._replace(turn=told.turn, terms=told.terms) == told
    elif name == "agree":
        assert message.turn == told.turn
        assert set(message.nodes) <= set(told.nodes)
    else:
        assert message == told


def servers_survive(tmp_path: Path, count: int) -> None:
    rng = random.Random(count + 1)
    federation = Federation(tmp_path, 4)
    attempt = federation.attempt()
    i = federation.ids[1]
    answers, refusals = [federation.nodes[i].prekeys("run-1", 2)], list[str]()
    pool = Pool(federation.roster, "run-1")
    for _ in range(count):
        data = mutated(rng, answers[0], answers)
        try:
            pool.receive(i, data)
        except WireError as error:
            refusals.append(str(error))
            assert pool.left(i) == 0
            continue
        keys = set(decode(answers[0], Prekeys, MOST).keys)
        assert set(decode(data, Prekeys, MOST).keys) <= keys
        pool = Pool(federation.roster, "run-1")
    for name in STEPS:
        if name == "join":
            told: bytes = attempt.invite
        elif name == "upload":
            told = attempt.deliver(DOWN)[i]
        else:
            told = attempt.agree() if name == "agree" else attempt.open()
        more = (DOWN, federation.values[i]) if name == "upload" else ()
        good = getattr(federation.nodes[i], name)(told, *more)
        answers.append(good)
        for _ in range(count):
            data = mutated(rng, good, answers)
            if data == good:
                continue
            before = memory(attempt)
            with pytest.raises(WireError) as caught:
                attempt.receive(i, data)
            refusals.append(str(caught.value))
            assert memory(attempt) == before
        attempt.receive(i, good)
        getattr(federation, "open_sum" if name == "open" else name)(attempt, without={i})
    assert (attempt.integers() == federation.plain(federation.ids)).all()
    assert not any("\n" in sentence for sentence in refusals)


def memory(attempt: Attempt) -> str:
    return repr((attempt._step, attempt._heard, attempt.sharers, attempt._words.tobytes()))


@pytest.mark.parametrize("survive", [nodes_survive, servers_survive])
def test_a_thousand_mutations(tmp_path: Path, survive: Callable[[Path, int], None]) -> None:
    survive(tmp_path, 125)  # of each of four messages


@pytest.mark.slow
@pytest.mark.parametrize("survive", [nodes_survive, servers_survive])
def test_a_hundred_thousand_mutations(tmp_path: Path, survive: Callable[[Path, int], None]) -> None:
    survive(tmp_path, 12_500)


TURN = Turn("run", 1, 2)
LIST = Request(TURN, 9, (1, 2), (b"part", b""))


@pytest.mark.parametrize(
    "message",
    [
        LIST,
        Invite(TURN, b"h" * 32, Terms(5, 0.5, (10, 2), (1.0, 2.0)), ()),
        Reply(TURN, 7, 3, (b"words",), b"signature"),
    ],
)
def test_a_message_has_one_encoding(message: Any) -> None:
    data = encode(message)
    assert decode(data, type(message), len(data)) == message
    for bad in (data[:-1], data + b"\0", b"X" + data[1:], data[:3] + b"\2" + data[4:], b""):
        with pytest.raises(WireError):
            decode(bad, type(message), MOST)


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        (b"run", b"r\nn", "a name is odd"),
        (b"run", b"r\xfcn", "a name is odd"),
        (b"\0\0\0\x03run", b"\xff\xff\xff\xffrun", "too short"),
        ((1).to_bytes(8, "big"), b"\x80" + bytes(7), "an integer is too large"),
        ((2).to_bytes(4, "big") + (1).to_bytes(8, "big"), b"\xff" * 12, "too large"),
    ],
)
def test_a_malformed_message_says_why(old: bytes, new: bytes, match: str) -> None:
    data = encode(LIST)
    assert old in data
    with pytest.raises(WireError, match=f"a secure request is malformed: .*{match}"):
        decode(data.replace(old, new), Request, MOST)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.0, -1.0])
def test_numbers_are_finite_and_not_negative(value: float) -> None:
    data = encode(Invite(TURN, b"", Terms(5, value, (), ()), ()))
    with pytest.raises(WireError, match="a number is negative or not finite"):
        decode(data, Invite, MOST)


def test_a_message_is_not_read_if_it_is_too_long() -> None:
    data = encode(LIST)
    with pytest.raises(WireError, match=f"has {len(data)} bytes; at most {len(data) - 1}"):
        decode(data, Request, len(data) - 1)


def test_a_node_bounds_what_it_reads(tmp_path: Path) -> None:
    federation = Federation(tmp_path, 3)
    node = federation.nodes[federation.ids[0]]
    for step in (node.join, node.agree, node.open):
        with pytest.raises(WireError, match="at most 66304"):
            step(bytes(66305))
    assert len(hints(Request)) == 4
