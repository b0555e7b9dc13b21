"""The examples run at toy size, where what they need is installed, and are short and listed."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import tunefree
from tests.one_process import in_one_process

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
NOTEBOOK = EXAMPLES / "first_federation.ipynb"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def accuracy(run: tunefree.Run) -> float:
    return run.history[-1]["accuracy"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_is_short_and_says_how_to_start_it(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    assert f"\n    python examples/{script.name}\n" in text.split('"""')[1]
    assert f"test_{script.stem}" in globals()


def test_the_table_lists_every_example() -> None:
    table = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[(.+?)\]\(\1\) \|", table, flags=re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in (*SCRIPTS, NOTEBOOK))


def test_hospitals(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pandas")
    run, told = example("hospitals").main(rounds=8)
    sizes = [row["n"] for row in run.client_scores()]
    assert len(sizes) == 6
    assert max(sizes) > 5 * min(sizes)
    assert accuracy(run) > 0.85  # two thirds are benign
    worst = re.findall(
        rf"^(\w+) .*accuracy {told['worst']:.3f}$", out := capsys.readouterr().out, re.M
    )
    assert f"worst: {worst[0]} with" in out


def test_two_inputs() -> None:
    run = example("two_inputs").main(rounds=15)
    assert accuracy(run) > 0.6  # one of the inputs gives 0.5 at best


def test_lora_with_peft(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("peft")
    run = example("lora_with_peft").main(rounds=4)
    adapters = sum(p.numel() for n, p in run.model.named_parameters() if "lora_" in n)
    assert run.objective.d == adapters
    assert run.history[-1]["bits_up"] == 4 * 5 * 32 * adapters
    assert f"{adapters:,} of" in capsys.readouterr().out


def test_late_clients() -> None:
    runs = example("late_clients").main(rounds=20, target=0.5)
    waiting, buffered = (runs[name].history for name in ("synchronous", "buffered"))
    assert waiting[-1]["virtual_seconds"] > 3 * buffered[-1]["virtual_seconds"]
    assert max(row["tau_max"] for row in buffered if "tau_max" in row) > 2
    assert all(accuracy(run) > 0.6 for run in runs.values())


def test_metered_link(capsys: pytest.CaptureFixture[str]) -> None:
    runs = example("metered_link").main(rounds=12, budgets=(0.1,))
    whole, two, one = (run.history[-1]["bits_up"] for run in runs.values())
    assert whole == 12 * 10 * 32 * (runs["whole"].objective.d + 1)
    assert 14 < whole / two < 16
    assert 26 < whole / one < 32
    cells = dict(re.findall(r"^(whole|one bit) +(\S+)", capsys.readouterr().out, re.M))
    assert float(cells["one bit"]) > float(cells["whole"]) + 0.2


def test_own_algorithm(capsys: pytest.CaptureFixture[str]) -> None:
    mean, median = example("own_algorithm").main(rounds=8)
    assert accuracy(median) > accuracy(mean) + 0.4
    assert "what must change in MedianAvg: nothing" in capsys.readouterr().out


def test_own_data_with_augmentation() -> None:
    runs = example("own_data_with_augmentation").main(rounds=3)
    assert {run.algo.sys.N for run in runs.values()} == {20}
    plain, shifted = (run.history[0]["train_loss"] for run in runs.values())
    assert plain != shifted  # the same first model on other pictures
    assert all(
        run.history[-1]["train_loss"] < run.history[0]["train_loss"] for run in runs.values()
    )


def test_live_logging(tmp_path: Path) -> None:
    file, live = io.StringIO(), example("live_logging")
    run = live.main(live.to_csv(file), tmp_path / "live.sqlite", rounds=12, enough=0.3)
    rows = list(csv.DictReader(io.StringIO(file.getvalue())))
    assert [float(row["round"]) for row in rows] == list(range(13))
    assert float(rows[-1]["accuracy"]) == accuracy(run) > 0.3
    assert rows[1]["accuracy"] == ""


def test_against_a_tuned_baseline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_one_process(monkeypatch)
    toy = {"clients": 8, "per_round": 4, "local_steps": 4, "rounds": 6, "workers": 1}
    main = example("against_a_tuned_baseline").main
    ours, tuned = main(tmp_path, grid="eta=0.1", seeds=(0,), **toy)
    assert (ours.steps, tuned.steps) == ("from theory", "tuned")
    assert (ours.tuning, tuned.tuning["rounds"]) == (None, 12)
    assert ours.accuracy > 0.5
    assert "and 12 rounds of tuning before them" in capsys.readouterr().out


def test_federation_on_flower(tmp_path: Path) -> None:
    """The app that it writes, and the federation's settings, without processes."""
    pytest.importorskip("flwr")
    from tunefree.node.local.up import check, run_config

    flower = example("federation_on_flower")
    task = flower.new_app(tmp_path / "digits")
    config = run_config(tmp_path / "digits", {"rounds": 5}, nodes=3)
    assert check(tmp_path / "digits", config, tmp_path) == 5
    run = flower.simulated(task, nodes=3, rounds=5)
    assert run.algo.sys.S == 3
    assert accuracy(run) > 0.5


@pytest.mark.parametrize("folder", ["pfl_app", "nvflare_app"])
def test_an_app_for_another_framework_is_short_and_listed(folder: str) -> None:
    files = (EXAMPLES / folder).glob("*.py")
    assert 50 < sum(len(file.read_text("utf-8").splitlines()) for file in files) <= 120
    assert f"| `{folder}/` |" in (EXAMPLES / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_pfl_research() -> None:
    pytest.importorskip("pfl")
    assert example("pfl_app/train").main(rounds=20) > 0.75


@pytest.mark.slow
def test_nvflare(tmp_path: Path) -> None:
    """In its real simulator, which starts a process for each client."""
    pytest.importorskip("nvflare")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import job; print('at the end', job.main({str(tmp_path)!r}, 5, 8))",
        ],
        cwd=EXAMPLES / "nvflare_app",
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert float(done.stdout.rpartition("at the end ")[2].split()[0]) > 0.6


@pytest.mark.slow
def test_the_whole_federation_on_flower(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("flwr")
    model, run = example("federation_on_flower").main(tmp_path, nodes=2, rounds=3)
    pairs = zip(model.parameters(), run.model.parameters(), strict=True)
    assert all(torch.equal(there, here) for there, here in pairs)
    assert "the simulator gives the same bits" in capsys.readouterr().out


def test_the_notebook_runs_cell_by_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("MPLBACKEND", "agg")
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert not cell["outputs"]
            exec("".join(cell["source"]).replace("rounds=60", "rounds=12"), names)
    assert names["run"].step.t == 11
    assert accuracy(names["run"]) > 0.5
    assert len(names["answers"]) == 10


def test_the_notebook_runs_in_a_kernel() -> None:
    """At its full size, as a reader starts it."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    done = nbclient.NotebookClient(nbformat.read(NOTEBOOK, as_version=4), timeout=300).execute()
    outputs = [output for cell in done.cells for output in cell.get("outputs", ())]
    text = "".join(output.get("text", "") for output in outputs)
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    assert float(re.findall(r"^accuracy (\S+);", text, re.MULTILINE)[0]) > 0.9
