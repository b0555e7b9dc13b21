"""`tunefree flower identity` and `roster`, and secure sums in `tunefree run`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")

from tunefree.cli import main
from tunefree.record import Record
from tunefree.secure.roster import read_identity, read_roster


def keys(folder: Path, n: int) -> list[str]:
    for i in range(n):
        assert main(["flower", "identity", str(folder / f"k{i}"), "--client", str(2 * i)]) == 0
    return [str(folder / f"k{i}.pub") for i in range(n)]


def test_a_roster_is_made_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    public, path = keys(tmp_path, 3), tmp_path / "roster"
    assert [(tmp_path / f"k{i}").stat().st_mode & 0o777 for i in range(3)] == [0o600] * 3
    made = ["flower", "roster", str(path), "--federation", "hospitals", "--pub", *public[::-1]]
    assert main(made) == 0
    roster = read_roster(path)
    assert roster.federation == "hospitals"
    assert roster.keys == {2 * i: read_identity(tmp_path / f"k{i}").public for i in range(3)}
    assert roster.fingerprint in capsys.readouterr().out
    assert main(["flower", "roster", str(path), "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"fingerprint": roster.fingerprint, "clients": [0, 2, 4]}


def test_what_is_wrong_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    public, path = keys(tmp_path, 2), str(tmp_path / "roster")
    (tmp_path / "bad.pub").write_text("0 zz\n")
    for arguments, reason in (
        (["roster", path], "cannot be read"),
        (["roster", path, "--pub", public[0], public[0]], "are of the same client"),
        (["roster", path, "--pub", str(tmp_path / "bad.pub")], "is not the public half"),
        (["roster", path, "--pub", "nowhere.pub"], "nowhere.pub"),
        (["identity", str(tmp_path / "k0"), "--client", "1"], "cannot be written"),
    ):
        assert main(["flower", *arguments]) == 2
        assert reason in capsys.readouterr().err
        assert not (tmp_path / "roster").exists()
    assert main(["flower", "roster", path, "--pub", *public]) == 0
    assert main(["flower", "roster", path, "--pub", *public]) == 2  # it is never overwritten


def run(folder: Path, name: str, *arguments: str) -> Any:
    words = ["run", "--rounds", "2", "--clients", "4", "--out", str(folder / name), *arguments]
    assert main(words) == 0
    record = Record.open(folder / name)
    found = record.vectors()["theta"].tobytes(), record.facts().settings["secure"]
    record.close()
    return found


def test_every_way_to_say_it_gives_the_same_bits(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("secure = true\n")
    by_flag = run(tmp_path, "a", "--secure")
    assert by_flag == run(tmp_path, "b", str(tmp_path / "s.toml"))
    assert by_flag == run(tmp_path, "c", "--set", "secure=true")
    assert by_flag != run(tmp_path, "d")
    assert by_flag[1]
