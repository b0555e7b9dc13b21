"""`tunefree export --state-dict` and `--tensorboard`: files that other programs can read."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import tunefree
from tunefree.cli import main
from tunefree.record import Record

CLIENTS = [(torch.randn(6, 4), torch.arange(6) % 3) for _ in range(3)]


@pytest.fixture(autouse=True)
def in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Tied(nn.Module):
    """Two names for one tensor, which is in theta once."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.again = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.again.weight = self.inside.weight
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.head(self.again(torch.relu(self.inside(x))))
        return answer


def train(model: nn.Module, path: str = "run.sqlite") -> nn.Module:
    run = tunefree.train(model, CLIENTS, rounds=2, local_steps=1, progress=False, out=path)
    return run.model


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
@pytest.mark.parametrize(
    "make", [lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), Tied]
)
def test_an_own_model_takes_its_state_dict(suffix: str, make: type[nn.Module]) -> None:
    trained, fresh = train(make()), make()
    assert not same(trained, fresh)
    file = f"model.{suffix}"
    assert main(["export", "run.sqlite", "--state-dict", file]) == 0
    state = load_file(file) if suffix == "safetensors" else torch.load(file, weights_only=True)
    fresh.load_state_dict(state)
    assert same(trained, fresh)


FROZEN = """
from torch import nn
import torch
def build(classes):
    first = nn.Linear(64, 8)
    first.weight.requires_grad_(False)
    model = nn.Sequential(nn.Flatten(), first, nn.Linear(8, classes))
    model.register_buffer("scale", torch.tensor(3.0))
    return model
"""


def test_frozen_parameters_and_buffers_of_a_named_model_are_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "frozen_model.py").write_text(FROZEN)
    monkeypatch.syspath_prepend(tmp_path)
    few = ["--clients", "4", "--per-round", "2", "--local-steps", "1", "--rounds", "2"]
    model = ["--model", "frozen_model:build", "--out", "run.sqlite"]
    assert main(["run", *few, *model, "--format", "json"]) == 0
    assert main(["export", "run.sqlite", "--state-dict", "model.pt"]) == 0
    state = torch.load("model.pt", weights_only=True)
    assert list(state) == ["scale", "1.weight", "1.bias", "2.weight", "2.bias"]
    assert state["scale"] == 3
    theta = torch.from_numpy(Record.open(Path("run.sqlite")).vectors()["theta"])
    trained = [state[name].reshape(-1) for name in ("1.bias", "2.weight", "2.bias")]
    assert torch.equal(torch.cat(trained), theta)
    assert torch.count_nonzero(state["1.weight"]) == 8 * 64
    (tmp_path / "frozen_model.py").write_text(
        FROZEN.replace("first = ", "nn.Linear(1, 1)\n    first = ")
    )
    monkeypatch.delitem(__import__("sys").modules, "frozen_model")
    __import__("importlib").invalidate_caches()
    capsys.readouterr()
    assert main(["export", "run.sqlite", "--state-dict", "again.pt"]) == 2
    assert "now builds another model than when" in capsys.readouterr().err


def test_what_the_file_does_not_store_is_one_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refused(*words: str) -> str:
        assert main(["export", "run.sqlite", *words]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        return err

    frozen = nn.Linear(4, 3)
    frozen.bias.requires_grad_(False)
    train(frozen)
    err = refused("--state-dict", "model.pt")
    assert "'bias' of the model was not trained" in err
    assert "tunefree.load('run.sqlite', model)" in err
    assert "must end in .safetensors or .pt" in refused("--state-dict", "model_option.bin")
    with closing(sqlite3.connect("run.sqlite")) as db:
        db.execute("DELETE FROM run WHERE key = 'tensors'")
        db.commit()
    assert "did not store the names" in refused("--state-dict", "model.pt")
    assert not list(Path().glob("model.*"))


def test_tensorboard_reads_the_scores_at_their_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(nn.Linear(4, 3))
    assert main(["export", "run.sqlite", "--tensorboard", "logs"]) == 0
    assert "3 rows written to logs" in capsys.readouterr().out
    events = EventAccumulator("logs")
    events.Reload()
    history = Record.open(Path("run.sqlite")).history()
    drawn = [(event.step, event.value) for event in events.Scalars("train_loss")]
    assert drawn == [
        (row["t"] + 1, pytest.approx(row["train_loss"])) for row in history if "train_loss" in row
    ]
    assert main(["export", "run.sqlite", "--tensorboard", "logs"]) == 2
    assert "is not an empty folder" in capsys.readouterr().err


def test_without_tensorboard_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train(nn.Linear(4, 3))
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    assert main(["export", "run.sqlite", "--tensorboard", "logs"]) == 2
    assert "pip install 'tunefree[tensorboard]'" in capsys.readouterr().err
    assert not Path("logs").exists()
