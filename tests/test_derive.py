"""The same settings mean the same run wherever they are given: what follows from the data too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.one_process import in_one_process
from tunefree import derive, search
from tunefree.cli import main
from tunefree.record import Record
from tunefree.settings import load

FILE = """
data = "table.csv"
local_epochs = 1
rounds = 2
eval_every = 2
[data_option]
target = "ill"
client_column = "hospital"
"""
NAMES = {"a": 20, "b": 30, "c": 50}  # hospital -> rows


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    in_one_process(monkeypatch)
    rng = np.random.default_rng(0)
    rows = [
        f"{rng.normal():.4f},{rng.integers(2)},{name}"
        for name, count in NAMES.items()
        for _ in range(count)
    ]
    Path("table.csv").write_text("\n".join(["age,ill,hospital", *rows]) + "\n")
    Path("own.toml").write_text(FILE)


def recorded() -> dict[str, Any]:
    """The settings of the one kind of run in the files here, and its constants."""
    found = []
    for path in Path().rglob("*.sqlite"):
        record = Record.open(path)
        facts = record.facts()
        record.close()
        kept = ("clients", "per_round", "local_steps", "partition", "data_fingerprint")
        found.append({name: facts.settings[name] for name in kept} | {"system": facts.system})
        path.unlink()
    assert found
    assert all(each == found[0] for each in found)
    return found[0]


def test_a_client_column_gives_natural_clients_in_every_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "own.toml"]) == 0
    expected = recorded()
    assert expected["partition"] == "natural"
    assert (expected["clients"], expected["per_round"], expected["local_steps"]) == (3, 3, None)
    assert expected["system"] == {"N": 3, "S": 3, "K": 2, "T": 2}
    same = ("--settings", "own.toml", "--seeds", "0", "--workers", "1", "--out", "runs")
    for words in (
        ("compare", "polarfl"),
        ("tune", "fedavg", "--grid", "eta=0.1", "--no-extend"),
        ("sweep", "fedavg", "--over", "eta", "--values", "0.1", "1"),
    ):
        assert main([*words, *same]) == 0, capsys.readouterr().err
        found = recorded()
        if words[0] == "tune":  # which holds samples out
            found["system"]["K"] = expected["system"]["K"]
        assert found == expected, words


def test_in_python_too() -> None:
    assert main(["run", "own.toml"]) == 0
    expected = recorded()
    shared = search.settings(
        data="table.csv",
        data_option={"target": "ill", "client_column": "hospital"},
        local_epochs=1,
        rounds=2,
        eval_every=2,
    )
    search.compare(["polarfl"], shared, [0], "runs", workers=1)
    assert recorded() == expected


def test_what_is_given_comes_before_what_follows() -> None:
    assert derive.settings(Path("own.toml"), {}).partition == "natural"
    other = derive.settings(Path("own.toml"), {"partition": "iid", "clients": 7})
    assert (other.partition, other.clients) == ("iid", 7)
    again = derive.settings(None, json.loads(json.dumps(other.asdict())) | {"rounds": 9})
    assert again.data_fingerprint == other.data_fingerprint


def test_built_in_data_add_nothing() -> None:
    given = {"data": "digits", "clients": 7}
    assert derive.settings(None, given) == load(None, given)
