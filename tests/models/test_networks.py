"""Networks by name: sizes, initial weights, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from tunefree.errors import ConfigError
from tunefree.models import MODELS, build, seeded
from tunefree.models.objective import Objective

IMAGE = (1, 28, 28)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "d"),
    [
        ("logistic", IMAGE, 10, 7_850),
        ("mlp", (1, 8, 8), 10, 64 * 64 + 64 + 64 * 10 + 10),
    ],
)
def test_parameter_counts(name: str, shape: tuple[int, ...], classes: int, d: int) -> None:
    objective = Objective(build(name, shape, classes))
    assert objective.d == d
    x = torch.zeros(2, *shape)
    answer = objective.outputs(objective.theta0, x)
    assert answer.shape == (2, classes)


def test_initial_weights_depend_on_the_seed_only() -> None:
    torch.manual_seed(5)
    first = Objective(build("mlp", IMAGE, 10, seed=1)).theta0
    torch.manual_seed(6)
    assert torch.equal(first, Objective(build("mlp", IMAGE, 10, seed=1)).theta0)
    assert not torch.equal(first, Objective(build("mlp", IMAGE, 10, seed=2)).theta0)


def test_a_users_own_module_is_seeded_in_the_same_way() -> None:
    torch.manual_seed(5)
    shape = {"input_shape": IMAGE, "classes": 10}
    own = Objective(seeded(lambda: MODELS["mlp"](**shape), seed=1)).theta0
    after = torch.rand(())
    assert torch.equal(own, Objective(build("mlp", IMAGE, 10, seed=1)).theta0)
    torch.manual_seed(5)
    assert torch.equal(after, torch.rand(()))  # what is drawn elsewhere stays as it was


def test_unknown_names_and_options_get_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'logistic'\?"):
        build("logistics", IMAGE, 10)
    with pytest.raises(ConfigError, match=r"did you mean 'hidden'\?"):
        build("mlp", IMAGE, 10, {"hiden": 3})


def test_a_users_function_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_models.py").write_text(
        "from torch import nn\n"
        "def build(classes, hidden=3):\n"
        "    layers = nn.Linear(64, hidden), nn.Linear(hidden, classes)\n"
        "    return nn.Sequential(nn.Flatten(), *layers)\n"
        "def wrong():\n"
        "    return 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert Objective(build("my_models:build", (1, 8, 8), 10, {"hidden": 5})).d == 65 * 5 + 60
    with pytest.raises(ConfigError, match="must return a torch nn.Module"):
        build("my_models:wrong", (1, 8, 8), 10)
    with pytest.raises(ConfigError, match="could not be imported"):
        build("my_models:absent", (1, 8, 8), 10)
