"""The files that operators handle: the roster, its fingerprint, and a node's signing key."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from tests.secure.federation import Federation
from tunefree.errors import ConfigError
from tunefree.secure.node import Node
from tunefree.secure.roster import (
    Identity,
    Roster,
    new_identity,
    read_identity,
    read_roster,
    verified,
)

TEXT = f"tunefree roster 1\nhospitals\n0 {'0a' * 32}\n7 {'1b' * 32}\n10 {'2c' * 32}\n"


def test_a_roster_has_one_form(tmp_path: Path) -> None:
    path = tmp_path / "roster.txt"
    path.write_text(TEXT)
    roster = read_roster(path)
    keys = {0: b"\x0a" * 32, 7: b"\x1b" * 32, 10: b"\x2c" * 32}
    assert (roster.federation, dict(roster.keys)) == ("hospitals", keys)
    assert Roster("hospitals", dict(reversed(keys.items()))).text() == TEXT
    assert roster.hash == sha256(TEXT.encode()).digest()


def test_the_fingerprint_can_be_read_out() -> None:
    roster = Roster("hospitals", {0: b"\x0a" * 32, 7: b"\x1b" * 32})
    value = int(sha256(roster.text().encode()).hexdigest(), 16) % 10**60
    assert re.fullmatch(r"\d{5}( \d{5}){11}", roster.fingerprint)
    assert int(roster.fingerprint.replace(" ", "")) == value
    changed = Roster("hospitals", {0: b"\x0a" * 32, 7: b"\x1b" * 31 + b"\x1a"})
    assert changed.fingerprint.split() != roster.fingerprint.split()
    assert all(
        a != b for a, b in zip(changed.fingerprint.split(), roster.fingerprint.split(), strict=True)
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-1],
        lambda text: text + "\n",
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("hospitals", "hos pitals"),
        lambda text: text.replace("roster 1", "roster 2"),
        lambda text: text.replace("7 ", "07 "),
        lambda text: text.replace("7 ", "11 "),
        lambda text: text.replace("7 ", "10 "),
        lambda text: text.replace("7 ", "-7 "),
        lambda text: text.replace("7 ", "7  "),
        lambda text: text.replace("1b", "1B"),
        lambda text: text.replace("1b" * 32, "1b" * 31),
        lambda text: text.replace("1b" * 32, "0a" * 32),
        lambda text: text.replace("1b" * 32, "ü" * 64),
        lambda text: "\n".join(text.split("\n")[:2]) + "\n",
        lambda text: "",
    ],
)
def test_any_other_form_is_refused(tmp_path: Path, change: Callable[[str], str]) -> None:
    path = tmp_path / "roster.txt"
    path.write_bytes(change(TEXT).encode())
    with pytest.raises(ConfigError, match="is not a roster: .* take the file as it was written"):
        read_roster(path)


def test_a_signing_key_is_written_once_and_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    identity = new_identity(path)
    assert path.stat().st_mode & 0o777 == 0o600
    again = read_identity(path)
    assert again.public == identity.public
    assert verified(identity.public, again.sign("purpose", b"a", b"b"), "purpose", b"a", b"b")
    for parts in ((b"ab",), (b"a", b"b", b""), (b"b", b"a")):
        assert not verified(identity.public, again.sign("purpose", b"a", b"b"), "purpose", *parts)
    assert not verified(identity.public, again.sign("purpose", b"a"), "other", b"a")
    with pytest.raises(ConfigError, match="node.key' cannot be written .File exists"):
        new_identity(path)
    assert read_identity(path).public == identity.public


def test_a_file_that_is_no_key_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    with pytest.raises(ConfigError, match="cannot be read .No such file"):
        read_identity(path)
    for content in (b"secret text", b"ab" * 31, b"\xff\xfe"):
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(ConfigError, match="is not a node's key") as caught:
            read_identity(path)
        assert content.decode("latin-1") not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__
    with pytest.raises(ConfigError, match="roster.txt' cannot be read"):
        read_roster(tmp_path / "roster.txt")


def test_a_node_needs_a_file_of_its_own(tmp_path: Path) -> None:
    federation = Federation(tmp_path, 3)
    i = federation.ids[0]
    identity: Identity = federation.identities[i]
    (tmp_path / "text").write_text("this is no database, but rather long for a text" * 10)
    for path in (tmp_path / "none" / "x.sqlite", tmp_path, tmp_path / "text"):
        with pytest.raises(ConfigError, match="cannot be used for secure sums"):
            Node(path, identity, federation.roster, i, 3)
