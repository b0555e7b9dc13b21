"""The same settings in Python, on the command line and on Flower give the same run."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tunefree
from tunefree import models
from tunefree.cli import main
from tunefree.data import partition, sources
from tunefree.errors import ConfigError
from tunefree.run.run import train
from tunefree.settings import Settings, deployed, load

DATA = (torch.zeros(5, 4), torch.arange(5) % 3)
NO_DEFAULT = (
    "client_test",
    "model",
    "clients",
    "per_round",
    "local_steps",
    "local_epochs",
    "out",
    "schedule",
)
SMALL: dict[str, Any] = {"rounds": 9, "per_round": 3, "local_steps": 2, "seed": 7}


def test_train_takes_the_command_lines_settings_and_defaults() -> None:
    usual = load(None, {}).asdict()
    for name, argument in inspect.signature(train).parameters.items():
        if name in usual and name not in NO_DEFAULT:
            assert argument.default == usual[name], name
    here, there = inspect.signature(train), inspect.signature(tunefree.Run)
    assert here.parameters == there.parameters
    again = inspect.signature(tunefree.Run.resume).parameters
    assert again == inspect.signature(tunefree.resume).parameters
    assert (again["rounds"].default, again["algorithm"].default) == (None, None)
    assert inspect.signature(train).parameters["schedule"].default == Settings().schedule


def test_a_deployment_takes_them_too() -> None:
    pytest.importorskip("flwr")
    from tunefree.flower.settings import OWN, settings_from

    ours = settings_from({}).at(50)
    assert ours == load(None, OWN)
    assert settings_from({"per_round": 0}).at(50).system.S == 50
    assert settings_from({}).at(4).system.S == 4
    assert settings_from({"data": "the app's own", "option.eta": 0.1}).given == {"option.eta": 0.1}
    with pytest.raises(ConfigError, match="per_round = '3' must be a whole number"):
        settings_from({"per_round": "3"})
    with pytest.raises(ConfigError, match="at_least = 3 exceeds per_round = 2; lower it"):
        settings_from({"per_round": 2, "at_least": 3})
    with pytest.raises(ConfigError, match="per_round = 5 exceeds the 4 registered clients"):
        settings_from({"per_round": 5}).at(4)
    with pytest.raises(ConfigError, match="deadline = 0.0 is too small"):
        settings_from({"deadline": 0.0})
    for old, new in {"per-round": "per_round", "at-least": "at_least"}.items():
        with pytest.raises(ConfigError, match=f"{old} is now called {new}"):
            settings_from({old: 2})


def test_the_same_bits_from_the_command_line_and_from_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    path = tmp_path / "a.sqlite"
    assert main(["run", "--clients=6", *flags, f"--out={path}", "--format=json"]) == 0
    told = json.loads(capsys.readouterr().out)
    digits = sources.load("digits")
    parts = partition.from_spec("dirichlet:0.1", digits.train.y.numpy(), 6, SMALL["seed"])
    model = models.build("mlp", digits.train.input_shape, digits.classes, seed=SMALL["seed"])
    run = tunefree.train(model, (digits.train, parts), digits.test, progress=False, **SMALL)
    assert run.theta_sha256 == told["theta_sha256"]
    same = ("bits_up", "bits_down", "samples", "accuracy", "system", "steps", "seed", "parameters")
    ours = run.record.summary().as_dict()
    assert {key: ours[key] for key in same} == {key: told[key] for key in same}


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("rounds", 0, "rounds = 0 is too small; it must be at least 1"),
        ("local_steps", 1.5, "local_steps = 1.5 must be a whole number"),
        ("batch_size", 0, "batch_size = 0 is too small; it must be at least 1"),
        ("seed", -1, "seed = -1 is too small; it must be at least 0"),
        ("kernels", "fast", "kernels = 'fast' is not known"),
    ],
)
def test_all_entry_points_have_the_same_errors(name: str, value: object, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        load(None, {name: value})
    with pytest.raises(ConfigError, match=sentence):
        tunefree.train(nn.Linear(4, 3), [DATA], **{name: value})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=sentence):
        load(None, deployed({name: value})[0])
