"""Errors spell a setting as the user gave it: in a file, as a flag, in a list of values."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunefree.cli import main


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text('per_round = 60\n[option]\neta = "x"\n')


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("run mine.toml", "per_round = 60 exceeds --clients = 50; lower per_round or raise"),
        ("run mine.toml --per-round 70", "--per-round 70 exceeds --clients = 50; lower --per-"),
        ("compare polarfl --settings mine.toml", "per_round = 60 exceeds --clients = 50"),
        ("run mine.toml --clients 80 --algorithm fedavg", "option.eta = 'x' is not a number"),
        ("run --algorithm fedavg --set option.eta=0", "--set option.eta=0 is out of range"),
        ("tune fedavg --grid eta=0,1", "--grid eta=0.0 is out of range; give a positive"),
        ("sweep fedavg --over eta --values -1 1", "--values -1.0 is out of range; give a"),
        ("compare fedavg:eta=-1", "fedavg:eta=-1 is out of range; give a positive"),
        ("run --set system.S=3", "system.S is now called per_round; write per_round, in a file "
         "above all tables"),
        ("run --set algorithm.eta=1", "algorithm.eta is now called option.eta; write option.eta, "
         "in a file below [option]"),
        ("run --set per-round=3", "per-round is now called per_round; write per_round\n"),
    ],
)  # fmt: skip
def test_a_setting_is_spelled_as_it_was_given(
    words: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"tunefree: {sentence}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("former", "now"),
    [("algorithms", "tunefree methods"), ("bench", "tunefree-evidence speed")],
)
def test_a_former_command_is_refused_with_the_one_of_today(
    former: str, now: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([former])
    assert f"it is now `{now}` (see tunefree --help)" in capsys.readouterr().err
