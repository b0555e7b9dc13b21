"""`tunefree data` as its user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tunefree.cli import main
from tunefree.data.sources import SOURCES


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "list", "--format", "json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert [name for name, row in rows.items() if row["package"] == "tunefree"] == [*SOURCES]
    assert rows["digits"]["here"] is True
    assert main(["data", "list"]) == 0
    assert "breast-cancer" in capsys.readouterr().out


def test_get(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "get", "digits"]) == 0
    assert capsys.readouterr().out == "digits: 1,438 train, 359 test samples\n"


def test_show_with_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["data", "show", "digits", "--partition", "dirichlet:0.1", "--clients", "20"]
    assert main([*argv, "--out", str(tmp_path), "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["train"], facts["input"], facts["classes"]) == (1438, [1, 8, 8], 10)
    assert facts["smallest client"] >= 10
    for key in ("picture", "clients' picture"):
        assert Path(facts[key]).read_bytes().startswith(b"\x89PNG")
    assert main([*argv, "--out", str(tmp_path)]) == 0
    assert "classes per client" in capsys.readouterr().out


def test_show_has_as_many_clients_as_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["data", "show", "digits", "--partition", "iid", "--out", str(tmp_path)]
    assert main([*argv, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["smallest client"] == 1438 // 50


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["get"], "needs a NAME"),
        (["show", "digit"], "did you mean 'digits'?"),
        (["show", "digits", "--clients", "0"], "--clients 0 is too small; it must be at least 1"),
        (["show", "digits", "--seed", "-1"], "--seed -1 is too small; it must be at least 0"),
        (["show", "digits", "--out", f"{__file__}/x"], f"('{__file__}' is a file)"),
        (["show", "digits", "--set", "test=0.1"], "--set test is not an option of the data"),
        (["show", "digits", "--partition", "natural"], "needs data that names its clients"),
    ],
)
def test_bad_input(
    argv: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["data", *argv]) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1
