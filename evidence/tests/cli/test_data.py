"""The data sets of this distribution on the product's command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tunefree.cli import main


def test_the_list_says_who_offers_what(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "list", "--format", "json"]) == 0
    packages = {row["name"]: row["package"] for row in json.loads(capsys.readouterr().out)}
    assert packages["digits"] == "tunefree"
    assert packages["fashion-mnist"] == "tunefree-evidence"
    assert main(["data", "list"]) == 0
    out = capsys.readouterr().out
    assert "emnist-part-balanced" in out
    assert "tunefree-evidence" in out


def test_show_the_synthetic_quadratic(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["data", "show", "synthetic-quadratic", "--partition", "natural"]
    assert main([*argv, "--out", str(tmp_path), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["classes"] is None


def test_train_on_the_synthetic_quadratic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["run", "--data", "synthetic-quadratic", "--partition", "natural", "--clients", "20"]
    dials = ["--set", "data_option.clients=20", "--set", "data_option.heterogeneity=3.0"]
    short = ["--rounds", "200", "--local-steps", "5", "--out", str(tmp_path / "run.sqlite")]
    assert main([*argv, *dials, *short, "--grad-norm", "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["accuracy"] is None
    assert result["grad_norm"] < 0.1
