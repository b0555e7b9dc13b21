"""Run files as earlier versions wrote them still open, have the same facts, and are reported."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunefree.cli import main
from tunefree.record import Record, Summary, summarise
from tunefree.report.grouping import NO_EFFECT
from tunefree.settings import Settings, restored

LAYOUT = """
CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE step (
    t INTEGER PRIMARY KEY, drawn INTEGER NOT NULL, seconds REAL NOT NULL, time REAL NOT NULL
);
CREATE TABLE reply (
    t INTEGER NOT NULL, client INTEGER NOT NULL, tau INTEGER NOT NULL, PRIMARY KEY (t, client)
) WITHOUT ROWID;
CREATE TABLE score (
    t INTEGER NOT NULL, name TEXT NOT NULL, value REAL NOT NULL, PRIMARY KEY (t, name)
) WITHOUT ROWID;
CREATE TABLE traffic (
    t INTEGER NOT NULL, exchange INTEGER NOT NULL, direction TEXT NOT NULL,
    messages INTEGER NOT NULL, bits INTEGER NOT NULL, value_bits INTEGER NOT NULL,
    PRIMARY KEY (t, exchange, direction)
) WITHOUT ROWID;
CREATE TABLE vector (
    owner INTEGER NOT NULL, field TEXT NOT NULL, t INTEGER NOT NULL,
    type TEXT NOT NULL, shape TEXT NOT NULL, crc32 INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (owner, field)
);
CREATE TABLE absent (
    t INTEGER NOT NULL, exchange INTEGER NOT NULL, client INTEGER NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (t, exchange, client)
) WITHOUT ROWID;
CREATE TABLE held (t INTEGER PRIMARY KEY, message BLOB NOT NULL);
INSERT INTO step VALUES (-1, 40, 2.0, 0.0), (0, 10, 0.5, 1.5), (1, 10, 0.3, 2.5);
INSERT INTO reply VALUES (-1, 0, 0), (-1, 1, 0), (0, 0, 0), (1, 0, 1), (1, 1, 0);
INSERT INTO score VALUES (-1, 'loss', 2.0), (1, 'loss', 1.0), (1, 'accuracy', 0.75);
INSERT INTO traffic VALUES (0, 0, 'up', 1, 32, 20), (0, 0, 'down', 1, 64, 64),
    (1, 0, 'up', 2, 64, 40), (1, 1, 'up', 2, 8, 8);
INSERT INTO absent VALUES (0, 0, 1, 'late');
PRAGMA user_version = 2;
"""
THETA = np.arange(3, dtype="<f4")
COMMON: dict[str, Any] = {
    "state": "done",
    "title": "FedAvg",
    "paper": "McMahan et al., 2017",
    "formulas": {},
    "steps": {"eta": 0.1, "gamma": 1.0},
    "system": {"N": 4, "S": 2, "K": 5, "T": 2},
    "parameters": 3,
    "kernels": "plain",
    "versions": {"torch": "2.0"},
    "fleet": "serial",
    "label_counts": [[2, 1], [0, 3]],
    "identity": {"seed": "7"},
    "writer": {"pid": 1},
}
SCHEDULE = {
    "name": "buffered",
    "concurrency": 3,
    "dispatch": "flush",
    "delays": "mild",
    "dropout": 0.0,
    "timeout": 0.0,
    "opening": "gradients",
}
CONFIG: dict[str, dict[str, Any]] = {
    "system": COMMON["system"],
    "algorithm": {
        "name": "fedavg",
        "compressor": "",
        "explicit_steps": False,
        "options": {"eta": 0.1},
    },
    "data": {
        "name": "digits",
        "partition": "iid",
        "batch_size": 8,
        "dir": "",
        "validation": 0.0,
        "options": {"fingerprint": "5a17"},
    },
    "model": {"name": "mlp", "options": {}},
    "schedule": SCHEDULE,
    "run": {"seed": 7, "eval_every": 2, "out": "runs/a.sqlite"},
}
BROUGHT = CONFIG | {  # by the caller, without a name
    "algorithm": {**CONFIG["algorithm"], "compressor": "top:0.05", "weighting": "examples"},
    "data": {**CONFIG["data"], "name": "", "partition": ""},
    "model": {"name": "", "options": {}},
}
DEPLOYED = BROUGHT | {"schedule": {**SCHEDULE, "delays": ""}}
DOORS: dict[str, dict[str, Any]] = {
    "command": {"config": CONFIG, "label": "mine", "settings": "ab12"},
    "train": {"config": BROUGHT, "door": "train"},
    "flower": {
        "config": DEPLOYED,
        "door": "flower",
        "fleet": "flower",
        "names": ["p0", "p1"],
        "federation": "f00d",
    },
}


def write(path: Path, **facts: object) -> Path:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(LAYOUT)
        rows = [(key, json.dumps(value)) for key, value in (COMMON | facts).items()]
        db.executemany("INSERT INTO run VALUES (?, ?)", rows)
        data = THETA.tobytes()
        row = (-1, "theta", 1, "<f4", "[3]", zlib.crc32(data), data)
        db.execute("INSERT INTO vector VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        db.commit()
    return path


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(door: str, tmp_path: Path) -> Path:
    return write(tmp_path / f"{door}.sqlite", **DOORS[door])


@pytest.fixture
def run(path: Path) -> Summary:
    return summarise(path)


def test_the_settings_have_their_names_of_today(door: str, run: Summary) -> None:
    facts = run.facts
    assert facts.door == door
    assert (facts.algorithm, facts.option, facts.seed) == ("fedavg", {"eta": 0.1}, 7)
    assert (facts.batch_size, facts.system) == (8, {"N": 4, "S": 2, "K": 5, "T": 2})
    assert (facts.data, facts.model) == (("digits", "mlp") if door == "command" else ("", ""))
    assert facts.step_sizes == [("eta", 0.1, "given"), ("gamma", 1.0, "default")]
    assert facts.plan == ("ab12" if door == "command" else "")
    assert Settings().asdict().keys() - facts.settings.keys() <= {*NO_EFFECT}
    settings = restored(facts.settings)
    assert isinstance(settings, Settings)
    assert settings.system == (4, 2, 5, 2)
    assert settings.scheduling.name == "buffered"
    assert (settings.concurrency, settings.data_fingerprint) == (3, "5a17")
    assert settings.delays == ("" if door == "flower" else "mild")
    assert settings.compressor == ("" if door == "command" else "top:0.05")
    assert settings.weighting == ("uniform" if door == "command" else "examples")
    if door == "flower":
        assert (facts.names, facts.federation, facts.fleet) == (["p0", "p1"], "f00d", "flower")


def test_local_epochs_leave_the_steps_to_the_data(tmp_path: Path) -> None:
    system = {"N": 4, "S": 2, "T": 2, "epochs": 3}
    run = summarise(write(tmp_path / "a.sqlite", config={**CONFIG, "system": system}))
    settings = restored(run.facts.settings)
    assert (settings.local_steps, settings.local_epochs) == (None, 3)
    assert settings.system_for([8, 24]).K == 6


def test_its_costs_and_scores(run: Summary) -> None:
    told = run.as_dict()
    assert [row["samples"] for row in run.rows] == [40, 50, 60]
    assert [row["absent"] for row in run.rows] == [0, 1, 0]
    for key, value in {
        "rounds": 2,
        "state": "done",
        "accuracy": 0.75,
        "loss": 1.0,
        "train_loss": None,
        "samples": 60,
        "virtual_seconds": 2.5,
        "seconds": pytest.approx(2.8),
        "absent": 1,
        "bits_up": 104,
        "bits_down": 64,
        "value_bits_up": 68,
        "staleness": {0: 2, 1: 1},
        "uploads": [1, 2],
        "seconds_per_round": pytest.approx(0.4),  # without the opening
    }.items():
        assert told[key] == value, key


def test_the_fingerprint_is_of_the_model(path: Path) -> None:
    with closing(Record.open(path)) as record:
        assert record.theta_sha256() == hashlib.sha256(THETA.tobytes()).hexdigest()


def test_every_command_reads_it(
    door: str, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def output(*words: str) -> str:
        assert main(words) == 0
        return capsys.readouterr().out

    assert "2/2" in output("runs", str(tmp_path))
    said = output("show", str(path))
    assert "FedAvg: done after round 2 of 2" in said
    assert "batches of 8" in said
    assert ("data digits, iid" in said) == (door == "command")
    assert output("export", str(path), "--csv", "-").splitlines()[-1].startswith("2,1,60,")
    assert output("report", str(path), "-o", str(tmp_path / "a.html")).startswith(
        "1 run of 1 method."
    )


def test_how_it_is_resumed(door: str, tmp_path: Path) -> None:
    run = summarise(write(tmp_path / "a.sqlite", **{**DOORS[door], "state": "running"}))
    assert run.state == "interrupted"  # no process is writing it
    assert run.facts.how_to_resume(Path("a.sqlite")) == {
        "command": "tunefree run --resume a.sqlite",
        "train": "tunefree.resume('a.sqlite', model, clients)",
        "flower": "flwr run, with the same app and --run-config",
    }[door]  # fmt: skip


def test_facts_of_another_shape_are_ignored(tmp_path: Path) -> None:
    odd = {"title": 3, "steps": [1], "config": {"data": 1, "run": {"seed": "x"}}, "mine": 7}
    run = summarise(write(tmp_path / "a.sqlite", **odd, label_counts=[[]]))
    assert (run.title, run.facts.steps, run.facts.data, run.facts.seed) == ("a", {}, "", None)
    assert run.facts.label_counts == []


def test_a_run_on_data_that_another_package_offers_now_opens_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tunefree.importing.entry_points", lambda group: [])
    data = {**CONFIG["data"], "name": "fashion-mnist", "options": {}}
    config = CONFIG | {"data": data, "model": {"name": "cnn_mnist", "options": {}}}
    path = str(write(tmp_path / "old.sqlite", config=config))
    for words in (
        ["show", path],
        ["export", path, "--csv", f"{path}.csv"],
        ["runs", str(tmp_path)],
    ):
        assert main(words) == 0
    assert "fashion-mnist" in capsys.readouterr().out
    assert main(["report", path, "-o", f"{path}.html"]) == 0
