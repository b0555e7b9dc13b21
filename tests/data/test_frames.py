"""Tables of eight hospitals, as frames: columns by name, and nothing mixed up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tunefree
from tunefree.data.clients import federation_from
from tunefree.errors import ConfigError


class Table:
    """What pandas' and polars' frames have in common."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self._columns = {name: np.asarray(values) for name, values in columns.items()}
        self.columns = list(columns)
        self.dtypes = [values.dtype for values in self._columns.values()]
        self.shape = (len(next(iter(self._columns.values()))), len(columns))

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]

    def to_numpy(self) -> Any:
        return np.stack(list(self._columns.values()), axis=1)


KINDS: list[Any] = [
    pytest.param(lambda: Table, id="table"),
    pytest.param(lambda: pytest.importorskip("pandas").DataFrame, id="pandas"),
    pytest.param(lambda: pytest.importorskip("polars").DataFrame, id="polars"),
]


@pytest.fixture(params=KINDS)
def frame(request: pytest.FixtureRequest) -> Callable[[dict[str, Any]], Any]:
    make: Callable[[dict[str, Any]], Any] = request.param()
    return make


def patients(hospital: int, n: int = 30) -> dict[str, Any]:
    rng = np.random.default_rng(hospital)
    pressure = rng.normal(size=n)
    return {
        "age": rng.integers(0, 3, n),
        "smoker": rng.random(n) > 0.5,
        "pressure": pressure,
        "label": (pressure > 0).astype(int),
    }


def features(columns: dict[str, Any]) -> torch.Tensor:
    names = ("age", "smoker", "pressure")
    return torch.tensor(np.stack([columns[name] for name in names], axis=1), dtype=torch.float32)


def test_eight_hospitals_train_on_their_tables(frame: Any) -> None:
    tables = [patients(hospital) for hospital in range(8)]
    settings: dict[str, Any] = {"rounds": 10, "progress": False, "eval_every": 10}
    runs = []
    for clients in (
        [frame(table) for table in tables],
        [(features(table), torch.from_numpy(table["label"])) for table in tables],
    ):
        torch.manual_seed(0)
        runs.append(tunefree.train(nn.Linear(3, 2), clients, clients[0], **settings))
    assert runs[0].theta_sha256 == runs[1].theta_sha256
    assert runs[0].history[-1]["accuracy"] > 0.8


def test_columns_go_by_name_and_not_by_place(frame: Any) -> None:
    one, two = patients(0), patients(1)
    turned = {name: two[name] for name in reversed(two)}
    federation = federation_from([frame(one), frame(turned)], test=frame(turned))
    x, y = federation.train.batch(federation.parts[1])
    assert torch.equal(x, features(two))
    assert y.tolist() == two["label"].tolist()
    assert federation.test is not None
    assert torch.equal(federation.test.x, features(two))


def test_a_frame_with_targets_beside_it(frame: Any) -> None:
    table = patients(0)
    x = frame({name: table[name] for name in ("age", "smoker", "pressure")})
    federation = federation_from([(x, frame(table)["label"]), (x, table["label"])])
    assert federation.train.x.shape == (60, 3)
    assert federation.train.y.tolist() == 2 * table["label"].tolist()


def without(name: str) -> dict[str, Any]:
    return {key: values for key, values in patients(0).items() if key != name}


BAD: list[tuple[list[dict[str, Any]], str]] = [
    (
        [patients(0) | {"sex": ["f"] * 30}],
        "client 0, column 'sex' contains str.*, not numbers; turn it",
    ),
    (
        [patients(0) | {"label": ["ill"] * 29 + [None]}],
        "column 'label', sample 29 has the label .* and others have words; give every sample",
    ),
    (
        [patients(0), without("age")],
        "client 0 has a column 'age' and client 1 has none; give all frames the same columns",
    ),
    ([without("age"), patients(0)], "client 1 has a column 'age' and client 0 has none"),
    ([without("label")], r"client 0 has the columns .*or give a pair \(frame, targets\)"),
    ([patients(0) | {"y": [1] * 30}], "columns label and y, any of which could be the target"),
    ([{"label": [0, 1]}], "client 0 is a frame without a feature"),
    (
        [patients(0) | {"pressure": [float("nan")] * 30}],
        "client 0, sample 0 has a non-finite input",
    ),
]


@pytest.mark.parametrize(("tables", "sentence"), BAD)
def test_mistakes_name_the_column(frame: Any, tables: list[Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as error:
        federation_from([frame(table) for table in tables])
    assert "\n" not in str(error.value)


def test_pandas_own_types_and_rows() -> None:
    pandas = pytest.importorskip("pandas")
    table = patients(0)
    plain = pandas.DataFrame(table)
    nullable = plain.convert_dtypes()
    assert torch.equal(federation_from([nullable]).train.x, features(table))
    assert federation_from([nullable]).train.y.tolist() == table["label"].tolist()
    gaps = nullable.assign(age=nullable["age"].mask(nullable.index == 4))
    with pytest.raises(ConfigError, match="client 0, sample 4 has a non-finite input"):
        federation_from([gaps])
    with pytest.raises(ConfigError, match="column 'day' contains Timestamp"):
        federation_from([plain.assign(day=pandas.Timestamp("2020-01-01"))])
    x, y = plain.drop(columns="label"), plain["label"]
    with pytest.raises(ConfigError, match=r"same index in another order; pair .*y.loc\[x.index\]"):
        federation_from([(x, y.iloc[::-1])])
    twice = pandas.concat([plain, plain[["age"]]], axis=1)
    with pytest.raises(ConfigError, match="2 columns 'age'"):
        federation_from([twice])
