"""Any data of a PyTorch user becomes a federation, or one clear error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from tunefree.data.clients import federation_from
from tunefree.data.partition import iid
from tunefree.data.sources import load
from tunefree.errors import ConfigError

X = torch.arange(24.0).view(6, 4)
Y = torch.tensor([0, 1, 0, 1, 1, 0])


class Items(Dataset[Any]):
    """A map-style data set of these items."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


class Columns:
    """The interface of a Hugging Face data set."""

    def __init__(self, **columns: Any) -> None:
        self.columns = columns
        self.column_names = list(columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, key: str) -> Any:
        return self.columns[key]


def pixels(*shape: int, seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def items() -> Items:
    return Items([(X[i].numpy(), int(Y[i])) for i in range(6)])


FORMS = {
    "tensors": (X, Y),
    "list of tensors": [X, Y],
    "arrays": (X.numpy(), Y.numpy()),
    "float64 arrays": (X.numpy().astype(np.float64), Y.numpy().astype(np.int32)),
    "lists": (X.tolist(), Y.tolist()),
    "tensor data set": TensorDataset(X, Y),
    "subset": Subset(TensorDataset(X, Y), range(6)),
    "items": items(),
    "subset of items": Subset(items(), list(range(6))),
    "list of items": [(X[i], Y[i]) for i in range(6)],
    "columns": Columns(x=X.tolist(), label=Y.tolist()),
    "columns of tensors": Columns(features=X, id=range(6), labels=Y),
    "one other column": Columns(measurement=list(X), target=list(Y)),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_samples(form: str) -> None:
    federation = federation_from([FORMS[form], (X[:2], Y[:2])], test=FORMS[form], classes=2)
    assert federation.parts.sizes.tolist() == [6, 2]
    x, y = federation.train.batch(federation.parts[0])
    torch.testing.assert_close(x, X)
    assert y.tolist() == Y.tolist()
    assert y.dtype == torch.int64
    assert federation.parts[1].tolist() == [6, 7]
    assert federation.test is not None
    torch.testing.assert_close(federation.test.x, X)
    assert federation.classes == 2


@pytest.mark.parametrize("form", FORMS)
def test_one_data_set_and_a_partition(form: str) -> None:
    parts = iid(Y, clients=3)
    federation = federation_from((FORMS[form], parts))
    assert federation.parts is parts
    assert federation.test is None
    assert len(federation) == 3


def test_pictures_get_channels_first_and_values_up_to_one() -> None:
    colour = [Image.fromarray(pixels(5, 6, 3, seed=i)) for i in range(4)]
    federation = federation_from([Columns(img=colour, fine_label=[0, 1, 2, 3])] * 2)
    assert federation.train.x.dtype == torch.uint8
    x, _ = federation.train.batch(np.array([2]))
    expected = torch.from_numpy(pixels(5, 6, 3, seed=2)).permute(2, 0, 1) / 255
    torch.testing.assert_close(x[0], expected)
    grey = [(Image.fromarray(pixels(5, 6, seed=i)), i) for i in range(4)]
    assert federation_from([Items(grey)]).train.input_shape == (1, 5, 6)


def test_the_users_prepare_wins_and_regression_keeps_its_targets() -> None:
    federation = federation_from([(X, Y / 2)], prepare=torch.neg)
    x, y = federation.train.batch(slice(0, 2))
    torch.testing.assert_close(x, -X[:2])
    assert y.tolist() == [0.0, 0.5]
    assert federation_from([(X.double(), Y)]).train.x.dtype == torch.float64


def test_read_only_arrays_are_copied() -> None:
    x = X.numpy().copy()
    x.flags.writeable = False
    assert federation_from([(x, Y)]).train.x.shape == (6, 4)


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield X[0], 1


class Broken(Dataset[Any]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, i: int) -> Any:
        raise OSError("gone")


GOOD = (X, Y)
BAD: list[tuple[Any, str]] = [
    ([], "has no client"),
    (
        [GOOD, GOOD, GOOD, (X[:, :3], Y)],
        r"client 3 has inputs of shape \(3,\) but client 0 has \(4",
    ),
    ([GOOD, (X, Y.view(6, 1))], r"client 1 has targets of shape \(1,\) but client 0 has \(\)"),
    ([GOOD, (X.long(), Y)], "client 1 has inputs of type torch.int64 but client 0 has torch.float"),
    ([GOOD, (X, Y[:5])], "client 1 has 6 inputs but 5 targets"),
    ([GOOD, (X[:0], Y[:0])], "client 1 has no samples"),
    ([GOOD, Items([])], "client 1 has no samples"),
    ([Items([X[0], X[1]])], "client 0, sample 0 is of type Tensor; a data set must give"),
    ([Items([(X[0], 1), (X[1, :2], 0)])], r"client 0, sample 1 has shape \(2,\) but sample 0 has"),
    ([Endless()], "client 0 is of type Endless"),
    ([7], "client 0 is of type int"),
    ([(X, 3)], "client 0 is one number where a list of samples is expected"),
    (
        [Columns(text=["good", "bad"], label=[1, 0])],
        "client 0, column 'text' contains values of type",
    ),
    ([Columns(a=[1], b=[2], label=[0])], "client 0 has the columns a, b, label; name the target"),
    ([Columns(image=[1], other=[2])], "name the target column one of label"),
    (
        [(np.array(["a", "b"]), [0, 1])],
        "client 0 contains values of type ndarray that are not numbers",
    ),
    ((GOOD, iid(range(9), 3)), "refers to sample 8, but the data set has 6"),
    ([(X * float("nan"), Y)], "client 0, sample 0 has a non-finite input"),
    ((X, Y), r"clients is one pair \(x, y\); give a list of clients, \[\(x, y\), ...\], or one"),
    ((X, X, Y), r"clients is 3 arrays; .*; a client of several inputs is \(\(a, b\), y\)"),
    ({"x": X, "y": Y}, "clients is one dict of arrays; give a list.* or a dict of clients by name"),
    ({"train": GOOD, "test": GOOD}, "parts of one data set, train, test; give .data.'train'"),
    ({"a": GOOD, "b": (X[:0], Y[:0])}, "client b has no samples"),
    ({"a": GOOD, "b": (X * torch.nan, Y)}, "client b, sample 0 has a non-finite input"),
    (
        [(X, Y, -Y.float())],
        "client 0 has weights of shape .6,. for 6 samples; give each sample one",
    ),
    ([(X, Y, torch.ones(5))], "client 0 has weights of shape .5,. for 6 samples"),
    ([(X, ["a", "b", None, "a", "b", "a"])], "client 0, sample 2 has the label None and others"),
    ([GOOD, (X, ["a"] * 6)], "client 0 has numbers as targets and others have words"),
    (TensorDataset(X, Y), "clients is one TensorDataset; give a list of clients"),
    ((GOOD, [[0, 1], [2, 3]]), r"lists of indices; .* tunefree.partition.Partition\(lists\)"),
    ([Broken()], r"client 0, sample 0 cannot be read: its data set failed with OSError: gone \(te"),
]


def test_two_clients_of_plain_lists_are_two_clients() -> None:
    assert len(federation_from((([1.0, 2.0], [0, 1]), ([3.0], [1])))) == 2
    assert len(federation_from(([(1.0, 0)], [(2.0, 1)]))) == 2


@pytest.mark.parametrize(("clients", "sentence"), BAD)
def test_mistakes_give_a_clear_error(clients: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as error:
        federation_from(clients)
    assert "\n" not in str(error.value)


def test_labels_and_test_set_are_checked() -> None:
    with pytest.raises(ConfigError, match="client 1, sample 1 has label 1, but the 1 classes"):
        federation_from([(X[:1], Y[:1]), GOOD], classes=1)
    with pytest.raises(ConfigError, match=r"the test set has inputs of shape \(2,\) but the tr"):
        federation_from([GOOD], test=(X[:, :2], Y))
    nothing: list[Any] = [(X[:0], Y[:0]), []]
    for empty in nothing:
        with pytest.raises(ConfigError, match="the test set has no samples; give some, or None"):
            federation_from([GOOD], test=empty)


def test_samples_keep_their_own_prepare_function() -> None:
    digits = load("digits")
    parts = iid(digits.train.y, clients=4)
    federation = federation_from((digits.train, parts), digits.test, classes=10)
    assert federation.train.x.dtype == torch.uint8
    assert federation.train.input_shape == (1, 8, 8)
    assert len(federation) == 4
