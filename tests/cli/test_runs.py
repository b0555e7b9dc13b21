"""`tunefree runs`, `show` and `export` on runs that ended in every way."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from pyarrow import parquet
from safetensors.numpy import load_file

import tunefree
from tunefree.cli import main
from tunefree.record import Facts, Line, Record
from tunefree.run.run import prepare
from tunefree.settings import Settings, load

pytestmark = pytest.mark.filterwarnings("ignore:the formula gives beta ")


def settings(path: Path, **more: object) -> Settings:
    keys: dict[str, object] = {"clients": 6, "per_round": 2, "local_steps": 2, "rounds": 6}
    keys |= {"out": str(path), "eval_every": 3, "model": "logistic"}
    keys["algorithm"] = "padamfed"
    return load(None, keys | {key.replace("__", "."): v for key, v in more.items()})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("runs")
    for _ in prepare(settings(folder / "done.sqlite", seed=4)):
        pass
    stopped = iter(prepare(settings(folder / "deep" / "stopped.sqlite")))
    for _ in islice(stopped, 3):
        pass
    stopped.close()
    with pytest.raises(ValueError, match="diverged"):
        for _ in prepare(settings(folder / "wild.sqlite", algorithm="fedavg", option__eta=1e38)):
            pass
    (folder / "torn.sqlite").write_text("this was never a run" * 99)
    running = prepare(settings(folder / "now.sqlite"))
    running.record.acquire()  # as a loop does before its first step
    yield folder
    running.record.close()


def output(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


def test_runs_shows_how_each_ended(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(output(capsys, "runs", str(folder), "--format", "json"))
    found = {Path(row["run"]).name: row for row in rows}
    assert "is not a run file" in found["torn.sqlite"]["reason"]
    assert {name: row["state"] for name, row in found.items()} == {
        "done.sqlite": "done",
        "stopped.sqlite": "interrupted",
        "wild.sqlite": "diverged",
        "now.sqlite": "running",
        "torn.sqlite": "unreadable",
    }
    done, stopped = found["done.sqlite"], found["stopped.sqlite"]
    assert (done["method"], done["data"], done["seed"]) == ("PAdaMFed", "digits", 4)
    assert (done["round"], done["rounds"], stopped["round"]) == (6, 6, 2)
    assert 0 < done["accuracy"] < 1
    text = output(capsys, "runs", str(folder))
    assert all(word in text for word in ("interrupted", "diverged", "2/6", "FedAvg"))


def test_runs_fit_a_terminal_of_80_columns_and_paths_stay_whole(
    tmp_path: Path,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    deep = tmp_path / ("a-long-name-for-a-folder-" * 3) / ("and-another-" * 5)
    deep.mkdir(parents=True)
    (deep / "done.sqlite").write_bytes((folder / "done.sqlite").read_bytes())
    lines = output(capsys, "runs", str(tmp_path)).splitlines()
    assert lines[-1].strip() == str(deep / "done.sqlite")
    assert len(lines[-1]) > 80
    assert max(map(len, lines[:-1])) <= 80
    assert lines[-2].split()[0] == "PAdaMFed"


def test_own_measures_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "own.sqlite"
    with closing(Record.create(path, Facts(state="done"))) as record:
        lines = [Line(t, 1, 0.1, 0.0, [], {"recall": 0.5 + t}, [], []) for t in range(2)]
        record.commit(lines, {})
    assert "recall 1.5" in output(capsys, "runs", str(tmp_path))
    assert "last scores, round 2: recall 1.5000" in output(capsys, "show", str(path))
    shown = json.loads(output(capsys, "show", str(path), "--format", "json"))
    assert (shown["recall"], shown["measures"]) == (1.5, ["recall"])


def test_a_folder_without_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no run files in" in output(capsys, "runs", str(tmp_path))
    assert main(["runs", str(tmp_path / "absent")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_show(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "show", str(folder / "done.sqlite"))
    for words in ("PAdaMFed: done after round 6 of 6", "N = 6, S = 2", "eta = ", "seed 4"):
        assert words in text
    text = output(capsys, "show", str(folder / "deep" / "stopped.sqlite"))
    assert "interrupted after round 2 of 6" in text
    assert text.endswith(f"next: tunefree run --resume {folder / 'deep' / 'stopped.sqlite'}\n")
    text = output(capsys, "show", str(folder / "wild.sqlite"))
    assert "training has diverged" in text
    shown = json.loads(output(capsys, "show", str(folder / "wild.sqlite"), "--format", "json"))
    assert shown["state"] == "diverged"
    assert shown["absences"] == {"`delta` is not finite": len(shown["absent"])}


def test_csv(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, path = str(folder / "done.sqlite"), tmp_path / "history.csv"
    assert output(capsys, "export", run, "--csv", str(path)) == f"7 rows written to {path}\n"
    with path.open() as file:
        rows = list(csv.DictReader(file))
    history = Record.open(folder / "done.sqlite").history()
    assert [float(row["bits_up"]) for row in rows] == [row["bits_up"] for row in history]
    assert [row["accuracy"] != "" for row in rows] == ["accuracy" in row for row in history]
    assert output(capsys, "export", run, "--csv", "-").splitlines() == path.read_text().splitlines()
    assert main(["export", run, "--csv", str(path)]) == 2
    assert "exists already and is not overwritten" in capsys.readouterr().err


def test_parquet(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history.parquet"
    output(capsys, "export", str(folder / "done.sqlite"), "--parquet", str(path))
    history = Record.open(folder / "done.sqlite").history()
    table = parquet.read_table(path).to_pydict()
    assert table["accuracy"] == [row.get("accuracy") for row in history]
    assert table["t"] == [row["t"] for row in history]


def test_safetensors(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.safetensors"
    output(capsys, "export", str(folder / "done.sqlite"), "--safetensors", str(path))
    vectors, expected = load_file(path), Record.open(folder / "done.sqlite").vectors()
    assert vectors.keys() == expected.keys() == {"theta", "c", "g"}
    assert all(np.array_equal(vectors[name], expected[name]) for name in expected)


def test_what_cannot_be_exported(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(run: str, *words: str) -> str:
        assert main(["export", str(folder / run), *words]) == 2
        return capsys.readouterr().err

    (empty := Record.create(tmp_path / "empty.sqlite", Facts())).close()
    assert "contains no model yet" in refused(str(empty.path), "--safetensors", str(tmp_path / "x"))
    assert "there is no folder" in refused("done.sqlite", "--csv", str(tmp_path / "no" / "x"))
    assert "is not a run file" in refused("torn.sqlite", "--csv", "-")
    assert "'/proc/x' cannot be written" in refused("done.sqlite", "--csv", "/proc/x")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    err = refused("done.sqlite", "--parquet", str(tmp_path / "y"))
    assert "pip install 'tunefree[export]'" in err


def test_show_clients(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = str(folder / "done.sqlite")
    shown = json.loads(output(capsys, "show", run, "--clients", "--format", "json"))
    rows, spread = shown["clients"], shown["spread"]["accuracy"]
    assert [row["client"] for row in rows] == list(range(6))
    assert sum(row["n"] for row in rows) == 1438
    values = [row["accuracy"] for row in rows]
    assert spread["mean"] == pytest.approx(np.mean(values))
    assert spread["std"] == pytest.approx(np.std(values))
    assert (spread["worst"], spread["best"]) == (min(values), max(values))
    assert values[spread["worst_client"]] == min(values)
    losses = [row["loss"] for row in rows]
    assert shown["spread"]["loss"]["worst"] == max(losses)
    weighted = np.average(losses, weights=[row["n"] for row in rows])
    assert weighted == pytest.approx(shown["train_loss"], rel=0.2)
    monkeypatch.setenv("COLUMNS", "80")
    text = output(capsys, "show", run, "--clients")
    assert f"worst {min(values):.4f} (client {spread['worst_client']})" in text
    assert max(map(len, text.splitlines())) <= 80
    ranges = [line for line in text.splitlines() if "#" in line]
    assert sum(int(line.split()[-1]) for line in ranges) == 6


def test_show_clients_of_a_run_without_their_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, path = torch.nn.Linear(2, 2), tmp_path / "own.sqlite"
    clients = [(torch.zeros(4, 2), torch.arange(4) % 2)] * 2
    tunefree.train(model, clients, rounds=1, local_steps=1, progress=False, out=path)
    text = output(capsys, "show", str(path), "--clients")
    assert "what each client sent" in text
    assert "no scores of clients: " in text
    assert "does not contain its clients' data" in text
    Record.create(tmp_path / "empty.sqlite", Facts()).close()
    assert main(["show", str(tmp_path / "empty.sqlite"), "--clients"]) == 2
    assert "contains no model yet" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["methods"], ["--version"], ["data", "list"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_ends_early_is_no_error(words: list[str], unbuffered: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "tunefree.cli", *words]
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    ended = subprocess.run(
        command, stdout=writing, stderr=subprocess.PIPE, env=environment, check=False
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, b"")
