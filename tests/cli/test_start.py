"""`--start` and `--lora`: a run that starts from given weights, and trains all or adapters only."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tunefree
from tunefree import derive
from tunefree.cli import main
from tunefree.data.clients import federation_from
from tunefree.errors import ConfigError
from tunefree.record import Record
from tunefree.run.assemble import of_model
from tunefree.run.run import Run, prepare, resume_command
from tunefree.settings import Settings, load

FEW = ["--clients=6", "--per-round=3", "--local-steps=2", "--fleet=serial", "--format=json"]
CLIENTS = [(torch.randn(6, 4), torch.arange(6) % 3) for _ in range(3)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of three rounds and its model in a file."""
    folder = tmp_path_factory.mktemp("base")
    base = f"{folder}/base.sqlite"
    assert main(["run", *FEW, "--rounds=3", f"--out={base}"]) == 0
    assert main(["export", base, "--state-dict", f"{folder}/base.pt"]) == 0
    return folder


@pytest.fixture(autouse=True)
def in_own_folder(tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *words: str, rounds: int = 2) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["run", *FEW, f"--rounds={rounds}", *words]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main([*words]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    return err


def rows(path: str) -> list[dict[str, float]]:
    with closing(Record.open(Path(path))) as record:
        return record.history()


def chosen(out: str, **more: Any) -> Settings:
    keys = {"clients": 6, "per_round": 3, "local_steps": 2, "rounds": 5, "fleet": "serial"}
    keys |= {"out": out, "start": "base.sqlite", "lora": 2}
    return load(None, keys | more)


def whole(run: Run) -> str:
    for _ in run:
        pass
    return run.theta_sha256


@pytest.mark.parametrize("lora", ["0", "2"])
def test_a_run_starts_where_another_ended(lora: str, capsys: pytest.CaptureFixture[str]) -> None:
    results = [
        run(capsys, f"--start=base.{suffix}", f"--lora={lora}", f"--out={suffix}-run.sqlite")
        for suffix in ("sqlite", "pt")
    ]
    assert len({each["theta_sha256"] for each in results}) == 1
    last, first = rows("base.sqlite")[-1], rows("pt-run.sqlite")[0]
    names = ("loss", "accuracy")
    assert [first[name] for name in names] == pytest.approx([last[name] for name in names])
    assert results[0]["parameters"] == (4810 if lora == "0" else 2 * (64 + 64 + 64 + 10))


def test_adapters_depend_on_the_seed_only() -> None:
    cases: list[dict[str, Any]] = [{}, {"start": ""}, {"seed": 1}]
    one, other, later = (
        prepare(chosen(f"{i}.sqlite", **more)).objective.theta0 for i, more in enumerate(cases)
    )
    assert torch.equal(one, other)
    assert not torch.equal(one, later)


def test_a_run_of_adapters_resumes_bit_for_bit_on_any_fleet() -> None:
    expected = whole(prepare(chosen("whole.sqlite")))
    steps = iter(prepare(chosen("run.sqlite")))
    next(steps), next(steps)
    steps.close()
    steps = iter(resume_command(Path("run.sqlite"), fleet="pool", workers=1))
    next(steps), next(steps)
    steps.close()
    assert whole(resume_command(Path("run.sqlite"))) == expected


def test_its_model_is_exported_with_all_weights(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "--start=base.sqlite", "--lora=2", "--out=run.sqlite")
    model, base = tunefree.load("run.sqlite"), torch.load("base.pt", weights_only=True)
    assert main(["export", "run.sqlite", "--state-dict", "run.pt"]) == 0
    state = torch.load("run.pt", weights_only=True)
    own = model.state_dict()
    assert list(state) == list(own)
    assert all(torch.equal(state[name], own[name]) for name in own)
    assert torch.equal(state["1.layer.weight"], base["1.weight"])
    assert torch.count_nonzero(state["1.up.weight"])
    assert main(["show", "run.sqlite"]) == 0
    assert "model mlp from base.sqlite with adapters of rank 2" in capsys.readouterr().out


@pytest.mark.parametrize("lora", [0, 2])
def test_it_does_not_resume_from_other_weights(
    lora: int, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = iter(prepare(chosen("run.sqlite", **{"lora": lora})))
    next(steps), next(steps)
    steps.close()
    resume = ["run", "--resume", "run.sqlite"]
    assert main(["run", "--resume", "base.sqlite", "--rounds=4", "--fleet=serial"]) == 0
    assert "--start base.sqlite has changed: its weights had" in refused(capsys, *resume)
    if lora:
        err = refused(capsys, "export", "run.sqlite", "--state-dict", "other.pt")
        assert "has changed" in err
    Path("base.sqlite").unlink()
    assert "--start base.sqlite does not exist; give a run" in refused(capsys, *resume)
    assert len(rows("run.sqlite")) == 2


def test_files_it_cannot_start_from(capsys: pytest.CaptureFixture[str]) -> None:
    Path("notes.txt").write_text("no weights")
    run(capsys, "--lora=2", "--out=lora.sqlite", rounds=1)
    assert main(["export", "base.sqlite", "--safetensors", "vectors.safetensors"]) == 0
    capsys.readouterr()
    for words, sentence in (
        (["--start=gone.pt"], "--start gone.pt does not exist"),
        (["--start=vectors.safetensors"], "export the model with --state-dict"),
        (["--start=notes.txt"], "'notes.txt' is not a run file"),
        (
            ["--start=base.sqlite", "--model=logistic"],
            "does not fit the model: the model has no '3.weight'",
        ),
        (["--start=lora.sqlite"], "it has no '1.weight'"),
        (
            ["--start=base.pt", "--set=model_option.hidden=32"],
            r"'1.weight' has shape (64, 64) there",
        ),
        (["--lora=-1"], "--lora -1 is too small"),
        (
            ["--lora=2", "--data=synthetic-quadratic", "--clients=100", "--partition=natural"],
            "needs a model with",
        ),
    ):
        assert sentence in refused(capsys, "run", *FEW, "--out=no.sqlite", *words)
    assert not Path("no.sqlite").exists()


def test_settings_depend_on_the_weights() -> None:
    """By this `compare`, `tune` and `sweep` know which runs are finished."""
    given: dict[str, object] = {"start": "base.pt"}
    first = derive.settings(None, given)
    assert first == derive.settings(None, given)
    state = torch.load("base.pt", weights_only=True)
    torch.save({name: each + 0.5 for name, each in state.items()}, "base.pt")
    assert derive.settings(None, given).asdict() != first.asdict()


def test_a_module_of_your_own_has_its_weights_already() -> None:
    with pytest.raises(ConfigError, match="lora is for models by name; give your own with its"):
        of_model(load(None, {"clients": 3, "lora": 2}), nn.Linear(4, 3), federation_from(CLIENTS))


def test_another_frozen_part_is_refused_in_python(tmp_path: Path) -> None:
    torch.manual_seed(2)
    frozen = nn.Linear(4, 4).requires_grad_(False)
    model = nn.Sequential(frozen, nn.Linear(4, 3))
    path = tmp_path / "own.sqlite"
    given: dict[str, Any] = {"local_steps": 1, "progress": False}
    tunefree.train(model, CLIENTS, rounds=2, out=path, **given)
    assert tunefree.resume(path, model, CLIENTS, rounds=3, progress=False).step.t == 2  # type: ignore[union-attr]
    frozen.weight.data += 1
    with pytest.raises(ConfigError, match="cannot be resumed: its frozen part was"):
        tunefree.resume(path, model, CLIENTS, rounds=4, progress=False)
