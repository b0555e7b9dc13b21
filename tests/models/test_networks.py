"""The built-in networks have the sizes that the papers print, and take the inputs they are for."""

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
    ("name", "shape", "classes", "options", "d"),
    [
        ("logistic", IMAGE, 10, {}, 7_850),
        ("mlp", (1, 8, 8), 10, {}, 64 * 64 + 64 + 64 * 10 + 10),
        ("cnn_mnist", IMAGE, 10, {}, 21_840),
        ("cnn_emnist", IMAGE, 47, {}, 135_663),
        ("cnn_emnist", IMAGE, 62, {}, 137_598),
        ("rnn3_emnist", IMAGE, 47, {}, 92_335),
        ("resnet18_cifar", (3, 32, 32), 10, {}, 11_173_962),
        ("lstm_imdb", (200,), 2, {}, 673_410),
        ("transformer_imdb", (200,), 2, {}, 335_010),
    ],
)
def test_parameter_counts(
    name: str, shape: tuple[int, ...], classes: int, options: dict[str, object], d: int
) -> None:
    objective = Objective(build(name, shape, classes, options))
    assert objective.d == d
    x = torch.zeros(2, *shape)
    answer = objective.outputs(objective.theta0, x.long() if name.endswith("_imdb") else x)
    assert answer.shape == (2, classes)


@pytest.mark.parametrize("name", ["lstm_imdb", "transformer_imdb"])
def test_padding_is_ignored(name: str) -> None:
    module = build(name, (6,), 2, {"vocabulary": 20})
    words = torch.tensor([[3, 4, 5, 0, 0, 0]])
    torch.testing.assert_close(module(words), module(words[:, :3]))


def test_a_text_without_words_has_a_gradient() -> None:
    options = {"vocabulary": 20, "layers": 2, "heads": 4}
    objective = Objective(build("transformer_imdb", (6,), 2, options).double())
    words, y = torch.tensor([[3, 4, 5, 0, 0, 0], [0] * 6]), torch.tensor([0, 1])
    loss, grad = objective.loss_and_grad(objective.theta0, words, y, seed=0)
    assert grad.isfinite().all()
    lower, _ = objective.loss_and_grad(objective.theta0 - 1e-5 * grad, words, y, seed=0)
    assert float(loss - lower) == pytest.approx(1e-5 * float(grad @ grad), rel=1e-2)
    torch.testing.assert_close(objective.score(objective.theta0, words, y)[1], loss)
    with pytest.raises(ConfigError, match="divisible by num_heads; choose another model"):
        build("transformer_imdb", (6,), 2, {"heads": 5})


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
    with pytest.raises(ConfigError, match=r"did you mean 'cnn_mnist'\?"):
        build("cnn-mnst", IMAGE, 10)
    with pytest.raises(ConfigError, match=r"did you mean 'hidden'\?"):
        build("mlp", IMAGE, 10, {"hiden": 3})


def test_a_model_for_other_inputs_says_so() -> None:
    with pytest.raises(ConfigError, match=r"cannot be built for inputs of shape \(64,\)"):
        build("cnn_mnist", (64,), 10)


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
