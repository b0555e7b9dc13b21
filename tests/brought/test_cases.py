"""What people bring as a client's data: it is what it says, or refused in one sentence."""

from __future__ import annotations

from collections import OrderedDict, UserDict
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as f
from torch.utils.data import ConcatDataset, DataLoader, Dataset, StackDataset, Subset, TensorDataset

from tunefree.data.clients import federation_from
from tunefree.data.samples import Federation, Partition, check_federation
from tunefree.errors import ConfigError
from tunefree.models.answers import inputs_of
from tunefree.models.objective import Objective
from tunefree.models.targets import task_of

RNG = torch.Generator().manual_seed(0)
X = torch.randn(12, 3, generator=RNG)
Y = X.argmax(1)
WORDS = [["benign", "malign", "unclear"][int(k)] for k in Y]
ITEMS = [(x, int(y)) for x, y in zip(X, Y, strict=True)]
PIXELS = torch.randint(0, 255, (12, 2, 2, 3), dtype=torch.uint8, generator=RNG)
PICTURES = [Image.fromarray(pixels.numpy()) for pixels in PIXELS]
LABELLED = list(zip(PICTURES, Y.tolist(), strict=True))


class Sample(NamedTuple):
    x: Any
    y: Any


class Listed(Dataset[Any]):
    def __init__(self, items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Any:
        return self.items[i]


class NoLength:
    def __getitem__(self, i: int) -> Any:
        return ITEMS[i]


def mapped(folder: Path) -> Any:
    np.save(folder / "x.npy", X.numpy())
    return np.load(folder / "x.npy", mmap_mode="r"), Y.numpy()


SAME: dict[str, Any] = {  # as (X, Y), bit by bit
    "arrays": (X.numpy(), Y.numpy()),
    "float64 array": (X.double().numpy(), Y.numpy()),
    "lists": (X.tolist(), Y.tolist()),
    "a pair in a list": [X, Y],
    "a named pair": Sample(X, Y),
    "int8 labels": (X, Y.to(torch.int8)),
    "uint8 labels": (X, Y.to(torch.uint8)),
    "int32 labels": (X, Y.int()),
    "uint16 labels": (X, Y.numpy().astype(np.uint16)),
    "uint64 labels": (X, Y.numpy().astype(np.uint64)),
    "float labels": (X, Y.float()),
    "float64 labels": (X, Y.double().numpy()),
    "a column of labels": (X, Y[:, None]),
    "one-hot": (X, f.one_hot(Y, 3)),
    "one-hot floats": (X, f.one_hot(Y, 3).float()),
    "words": (X, WORDS),
    "requires grad": (X.clone().requires_grad_(), Y),
    "a parameter": (nn.Parameter(X), Y),
    "transposed": (X.t().contiguous().t(), Y),
    "Fortran order": (np.asfortranarray(X.numpy()), Y),
    "reversed twice": (X.numpy()[::-1].copy()[::-1], Y),
    "big-endian": (X.numpy().astype(">f4"), Y.numpy().astype(">i8")),
    "read-only": (np.frombuffer(X.numpy().tobytes(), np.float32).reshape(12, 3), Y),
    "a masked array without masks": (np.ma.masked_array(X.numpy()), Y),
    "a dict of columns": {"x": X, "y": Y},
    "a dict with words": {"x": X, "label": WORDS},
    "data set": Listed(ITEMS),
    "TensorDataset": TensorDataset(X, Y),
    "Subset": Subset(Listed(ITEMS), range(12)),
    "Subset by an array": Subset(Listed(ITEMS), np.arange(12)),  # type: ignore[arg-type]
    "Subset by a tensor": Subset(TensorDataset(X, Y), torch.arange(12)),  # type: ignore[arg-type]
    "Subset of a Subset": Subset(Subset(Listed(ITEMS), range(12)), range(12)),
    "ConcatDataset": ConcatDataset([Listed(ITEMS[:5]), Listed(ITEMS[5:])]),
    "StackDataset": StackDataset(X, Y),  # type: ignore[arg-type]
    "StackDataset by name": StackDataset(x=X, label=Y),  # type: ignore[arg-type]
    "DataLoader": DataLoader(TensorDataset(X, Y), 4, shuffle=True),
    "items": ITEMS,
    "a tuple of items": tuple(ITEMS),
    "items as lists": [[x, y] for x, y in ITEMS],
    "named items": [Sample(x, y) for x, y in ITEMS],
    "dicts": [{"x": x, "label": y} for x, y in ITEMS],
    "ordered dicts": [OrderedDict(y=y, x=x) for x, y in ITEMS],
    "other mappings": [UserDict(x=x, y=y) for x, y in ITEMS],
    "items of NumPy": [(x.numpy(), np.int64(y)) for x, y in ITEMS],
    "items of lists": [(x.tolist(), y) for x, y in ITEMS],
    "labels as tensors": [(x, torch.tensor(y)) for x, y in ITEMS],
    "labels as columns": [(x, torch.tensor([y])) for x, y in ITEMS],
    "labels as floats": [(x, float(y)) for x, y in ITEMS],
    "labels as words": list(zip(X, WORDS, strict=True)),
    "labels as words of NumPy": [(x, np.str_(word)) for x, word in zip(X, WORDS, strict=True)],
    "weights of one": (X, Y, torch.ones(12)),
    "weights in a list": (X, Y, [1.0] * 12),
}
REFUSED: dict[str, tuple[Any, str]] = {
    "float64 tensor": ((X.double(), Y), r"give inputs of the model's type, x.to\(torch.float32\)"),
    "half precision": ((X.half(), Y), r"x.to\(torch.float32\)"),
    "whole numbers": ((X.long(), Y), r"give floats, x.float\(\)$"),
    "booleans": ((X > 0, Y), r"give floats, x.float\(\)$"),
    "bytes of pixels": ((PIXELS.flatten(1)[:, :3], Y), r"give floats, x.float\(\) / 255$"),
    "complex": ((X.to(torch.complex64), Y), "give real numbers"),
    "labels from 1": ((X, Y + 1), r"has label 3, but the 3 classes are labelled 0 to 2; relabel"),
    "label -1": ((X, Y - 1), "has label -1.* drop samples without a label"),
    "label -100": ((X, Y.masked_fill(Y == 0, -100)), "has label -100.* drop samples without"),
    "not a number": ((X.masked_fill(X > 1, torch.nan), Y), "sample 4 has a non-finite input"),
    "infinity": ((X.masked_fill(X > 1, torch.inf), Y), "sample 4 has a non-finite input"),
    "empty": ((X[:0], Y[:0]), "client 0 has no samples"),
    "different lengths": ((X, Y[:5]), "12 inputs but 5 targets"),
    "masked": ((np.ma.masked_array(X.numpy(), X > 1), Y), "masked array; fill it with .filled"),
    "structured": ((np.zeros(12, [("a", "f4")]), Y), "not numbers of one shape"),
    "objects": ((X.numpy().astype(object), Y), "not numbers of one shape"),
    "fractions": (([[Fraction(1, 2)] * 3] * 12, Y), "not numbers of one shape"),
    "sparse": ((X.to_sparse(), Y), r"sparse tensor; make it dense with .to_dense\(\)"),
    "meta": ((X.to("meta"), Y), "tensor without numbers; make it on the cpu"),
    "packed": (
        (nn.utils.rnn.pack_padded_sequence(X[:, :, None], [3] * 12, batch_first=True), Y),
        "input 2 contains values of type NoneType",
    ),
    "texts": ([("a text", y) for _, y in ITEMS], "type str that are not numbers"),
    "paths": ((["a.png"] * 12, Y), "turn them into numbers first"),
    "no targets": ((X, None), "values of type NoneType"),
    "targets in a dict": ((X, {"k": Y}), "values of type dict"),
    "targets in a tuple": ((X, (Y, Y)), "12 inputs but 2 targets"),
    "targets of items in a dict": ([(x, {"k": y}) for x, y in ITEMS], "values of type dict"),
    "missing labels": ([(x, None) for x, _ in ITEMS], "values of type NoneType"),
    "a missing word": ((X, [*WORDS[:-1], None]), "sample 11 has the label None and others have"),
    "a number among words": (
        list(zip(X, [*WORDS[:-1], 3], strict=True)),
        "sample 11 has the label 3",
    ),
    "a number": ((X, 3), "one number where a list of samples is expected"),
    "three arrays": (
        (X, X, Y),
        r"third is not weights.* several inputs are a tuple, \(\(a, b\), y",
    ),
    "three tensors": (TensorDataset(X, X, Y), r"third is not a weight.* \(\(a, b\), y\)"),
    "places beside samples": ([(x, y, i) for i, (x, y) in enumerate(ITEMS)], "is not a weight"),
    "facts beside samples": ([(x, y, {"id": 1}) for x, y in ITEMS], "is not a weight"),
    "weights of zero": ((X, Y, torch.zeros(12)), "not all of them 0"),
    "negative weights": ((X, Y, -torch.ones(12)), "finite and not negative"),
    "weights in a matrix": (
        (X, Y, torch.ones(12, 1)),
        r"weights of shape \(12, 1\) for 12 samples",
    ),
    "inputs in a list": (([X, X], Y), r"gets them as a tuple, \(\(a, b\), y\)"),
    "inputs in tuples": ((((X, X), X), Y), "2 inputs but 12 targets"),
    "dicts in dicts": (({"x": {"a": X}}, Y), "input 'x' contains values of type dict"),
    "different shapes": ([(torch.ones(i + 1), 0) for i in range(4)], "pad or resize them to one"),
    "generator": ((item for item in ITEMS), r"only be read in sequence.* such as list\(data\)"),
    "map": (map(tuple, ITEMS), "only be read in sequence"),
    "no length": (NoLength(), "a torch Dataset with a length"),
    "a Subset by a mask": (
        Subset(Listed(ITEMS), Y > 0),  # type: ignore[arg-type]
        "Subset by a mask, which it takes for samples 0 and 1",
    ),
    "a picture without shades": ([(p.convert("P"), y) for p, y in LABELLED], r"mode 'P'.*convert"),
    "a picture of bits": ([(p.convert("1"), y) for p, y in LABELLED], "mode '1'"),
    "grey and colour": (
        [(PICTURES[0].convert("L"), 0), *LABELLED[1:]],
        r"shape \(3, 2, 2\) but sample 0 has \(2, 2\)",
    ),
    "sizes of pictures": (
        [(PICTURES[0].resize((3, 3)), 0), *LABELLED[1:]],
        "pad or resize them to one shape",
    ),
    "a name": ("digits", "client 0, sample 0 is of type str"),
    "nothing": (None, "client 0 is of type NoneType"),
}


def taken(clients: Any, model: nn.Module | None = None) -> Federation:
    """The data as training gets them, after all checks that need no training."""
    module = model or nn.Linear(3, 3)
    given = federation_from(clients, takes=inputs_of(module))
    task = task_of(module, given.train)
    federation = check_federation(task.of(given))
    Objective(module, task.loss).check(federation.train)
    return federation


def same(federation: Federation) -> bool:
    x, y = federation.train.batch(slice(0, 12))
    return x.dtype == X.dtype and y.dtype == Y.dtype and torch.equal(x, X) and torch.equal(y, Y)


@pytest.mark.parametrize("case", SAME)
def test_it_is_what_it_says(case: str) -> None:
    assert same(taken([SAME[case]]))


def test_a_mapped_file_is_what_it_says(tmp_path: Path) -> None:
    assert same(taken([mapped(tmp_path)]))


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.filterwarnings("ignore")
def test_it_is_refused_in_one_sentence(case: str) -> None:
    data, sentence = REFUSED[case]
    with pytest.raises(ConfigError, match=sentence) as error:
        taken([data])
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


FRAMES: dict[str, tuple[Callable[[Any], Any], str]] = {  # what is done to it -> the error, or none
    "as it is": (lambda t: t, ""),
    "a pair": (lambda t: (t[["a", "b", "c"]], t["label"]), ""),
    "numbered columns": (lambda t: t.rename(columns={"a": 0, "b": 1, "c": 2}), ""),
    "nullable": (lambda t: t.astype({"a": "Float64", "label": "Int64"}), ""),
    "categories of numbers": (lambda t: t.astype({"label": "category"}), ""),
    "words": (lambda t: t.assign(label=WORDS), ""),
    "nullable words": (lambda t: t.assign(label=WORDS).astype({"label": "string"}), ""),
    "categories of words": (lambda t: t.assign(label=WORDS).astype({"label": "category"}), ""),
    "objects": (lambda t: t.astype({"b": object}), ""),
    "decimals": (lambda t: t.assign(b=[Decimal(repr(float(v))) for v in t["b"]]), ""),
    "float32": (lambda t: t.astype({"a": "float32"}), ""),
    "a missing number": (lambda t: t.assign(a=t["a"].where(t["a"] < 0)), "non-finite input"),
    "a missing word": (lambda t: t.assign(label=[*WORDS[:-1], None]), "sample 11 has the label"),
    "words as features": (
        lambda t: t.assign(d=WORDS),
        "column 'd' contains str, not numbers; turn",
    ),
    "category features": (
        lambda t: t.assign(d=WORDS).astype({"d": "category"}),
        "column 'd' contains str",
    ),
    "dates": (lambda t: t.assign(d=np.datetime64("2020-01-01")), "column 'd' contains Timestamp"),
    "columns of the same name": (
        lambda t: t.rename(columns={"b": "a"}),
        "2 columns 'a'; give them different names",
    ),
    "rows in another order": (
        lambda t: (t[["a", "b", "c"]].iloc[::-1], t["label"]),
        "same index in another order",
    ),
}


@pytest.mark.parametrize("case", FRAMES)
def test_frames_too(case: str) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X.double().numpy(), columns=["a", "b", "c"]).assign(label=Y.numpy())
    change, sentence = FRAMES[case]
    if not sentence:
        assert same(taken([change(table)]))
        return
    with pytest.raises(ConfigError, match=sentence):
        taken([change(table)])


def test_hugging_face_too() -> None:
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"x": X.tolist(), "label": Y.tolist()})
    words = datasets.Dataset.from_dict({"x": X.tolist(), "label": WORDS})
    for data in (table, table.with_format("torch"), table.with_format("numpy"), words):
        assert same(taken([data]))
    assert same(taken([DataLoader(table.with_format("torch"), 4, shuffle=True)]))
    with pytest.raises(ConfigError, match=r"\(data\['train'\], partition\)"):
        taken(datasets.DatasetDict(train=table, test=table))
    with pytest.raises(ConfigError, match="clients is one Dataset; give a list of clients"):
        taken(table)


def test_pictures_are_shades_from_0_to_1() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    x, y = taken([LABELLED], model).train.batch(slice(0, 12))
    torch.testing.assert_close(x, PIXELS.permute(0, 3, 1, 2) / 255)
    assert torch.equal(y, Y)


def parts(*places: list[int]) -> Partition:
    return Partition([np.array(each, np.int64) for each in places])


ONE = (X, Y)
ALL: dict[str, tuple[Any, str]] = {
    "a generator of clients": ((each for each in (ONE, ONE)), ""),
    "values of a dict": ({"a": ONE, "b": ONE}.values(), ""),
    "names that are numbers": ({3: ONE, 5: ONE}, ""),
    "a client twice": ([ONE, ONE], ""),
    "a sample twice": ((ONE, parts([0, 1], [1, 1])), ""),
    "one sample each": ([(X[i : i + 1], Y[i : i + 1]) for i in range(12)], ""),
    "unequal": ([ONE, (X[:1], Y[:1])], ""),
    "an empty client": ((ONE, parts([0], [])), "client 1 has no samples"),
    "no client": ([], "no client"),
    "no named client": ({}, "no client"),
    "an array": (X, "clients is one Tensor; give a list of clients"),
    "one array": ([X], "clients is one array; give a list of clients"),
    "a pair": (ONE, r"clients is one pair \(x, y\)"),
    "a number": (3, "clients is of type int; give a list of clients"),
    "a word": ("digits", "clients is of type str; give a list of clients"),
    "parts of one data set": ({"train": ONE, "test": ONE}, "parts of one data set, train, test"),
    "too large places": (
        (ONE, parts([12])),
        "sample 12, but the data set",
    ),
    "words here, numbers there": ([ONE, (X, WORDS)], "numbers as targets and others have words"),
}


@pytest.mark.parametrize("case", ALL)
def test_clients_too(case: str) -> None:
    clients, sentence = ALL[case]
    if not sentence:
        assert len(taken(clients)) >= 2
        return
    with pytest.raises(ConfigError, match=sentence):
        taken(clients)
