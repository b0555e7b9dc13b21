"""The networks have the sizes that the papers print, and take the inputs they are for."""

from __future__ import annotations

import pytest
import torch

from tunefree.errors import ConfigError
from tunefree.models import build
from tunefree.models.kernels import Conv, WideConv, chain_of
from tunefree.models.objective import Objective

IMAGE = (1, 28, 28)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "d"),
    [
        ("cnn_mnist", IMAGE, 10, 21_840),
        ("cnn_emnist", IMAGE, 47, 135_663),
        ("cnn_emnist", IMAGE, 62, 137_598),
        ("rnn3_emnist", IMAGE, 47, 92_335),
        ("resnet18_cifar", (3, 32, 32), 10, 11_173_962),
        ("lstm_imdb", (200,), 2, 673_410),
        ("transformer_imdb", (200,), 2, 335_010),
    ],
)
def test_parameter_counts(name: str, shape: tuple[int, ...], classes: int, d: int) -> None:
    objective = Objective(build(name, shape, classes))
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


def test_a_model_for_other_inputs_says_so() -> None:
    with pytest.raises(ConfigError, match=r"cannot be built for inputs of shape \(64,\)"):
        build("cnn_mnist", (64,), 10)


@pytest.mark.parametrize(
    ("name", "image", "kinds"),
    [
        ("cnn_mnist", IMAGE, [Conv, Conv]),
        ("cnn_mnist", (3, 32, 32), [WideConv, Conv]),
        ("cnn_emnist", IMAGE, [Conv, WideConv, WideConv]),
    ],
)
def test_who_convolves(name: str, image: tuple[int, ...], kinds: list[type]) -> None:
    chain = chain_of(build(name, image, 10))
    assert chain is not None
    assert kinds == [type(each) for each in chain.layers if isinstance(each, Conv | WideConv)]


def test_the_choice_of_kernels() -> None:
    for name in ("cnn_mnist", "cnn_emnist"):
        assert Objective(build(name, IMAGE, 10)).kernels == "batch-minor"
    assert Objective(build("resnet18_cifar", (3, 32, 32), 10, {"width": 8})).kernels == (
        "channels-last"
    )
    assert Objective(build("lstm_imdb", (9,), 2, {"vocabulary": 9})).kernels == "plain"
