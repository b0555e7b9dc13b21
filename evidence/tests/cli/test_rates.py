"""`tunefree-evidence rates`: a picture, and the same numbers as lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.one_process import in_one_process
from tunefree_evidence.cli import main, rates


def test_a_picture_and_its_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    in_one_process(monkeypatch)
    monkeypatch.setattr(rates, "SWEPT", rates.SWEPT[:1])
    monkeypatch.setattr(rates, "RATES", (0.01, 0.3))
    picture = tmp_path / "rates.png"
    options = ["--rounds", "2", "--seeds", "0", "--workers", "1", "--format", "json"]
    assert main(["rates", *options, "--out", str(tmp_path / "runs"), "-o", str(picture)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [rate for rate, _ in found["FedAvg"]] == [0.01, 0.3]
    assert all(0 < accuracy < 1 for _, each in found["FedAvg"] for accuracy in each)
    assert len(found["polarfl"]) == 1
