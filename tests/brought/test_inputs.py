"""Every column is an input that forward names, the target, or named as neither."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import tunefree
from tunefree.data.clients import federation_from
from tunefree.errors import ConfigError
from tunefree.run.run import Run

RNG = torch.Generator().manual_seed(0)
X = torch.randn(40, 3, generator=RNG)
MASK = (torch.rand(40, 3, generator=RNG) > 0.5).float()
Y = (X * MASK).argmax(dim=1)


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.dense = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        answer: torch.Tensor = self.dense(x if mask is None else x * mask)
        return answer


class Columns:
    """The interface of a Hugging Face data set."""

    def __init__(self, **columns: Any) -> None:
        self.columns, self.column_names = columns, list(columns)

    def __len__(self) -> int:
        return len(self.columns["y"])

    def __getitem__(self, key: int | str) -> Any:
        if isinstance(key, str):
            return self.columns[key]
        return {name: values[key] for name, values in self.columns.items()}


def rows(**columns: Any) -> list[dict[str, Any]]:
    return [{name: values[i] for name, values in columns.items()} for i in range(40)]


def fit(data: Any, model: nn.Module | None = None) -> Run:
    settings: dict[str, Any] = {"rounds": 4, "local_steps": 2, "progress": False}
    return tunefree.train(model or Masked(), [data, data], data, **settings)


@pytest.mark.parametrize("kind", [rows, Columns])
def test_what_forward_names_is_an_input(kind: Any) -> None:
    masked = fit(({"x": X, "mask": MASK}, Y)).theta_sha256
    alone = fit((X, Y)).theta_sha256
    assert fit(kind(x=X, mask=MASK, y=Y)).theta_sha256 == masked != alone
    assert fit(kind(x=X, y=Y)).theta_sha256 == alone


def test_position_ids_are_passed_too() -> None:
    class Placed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.words, self.places = nn.Embedding(9, 3), nn.Embedding(4, 3)

        def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
            answer: torch.Tensor = (self.words(input_ids) + self.places(position_ids)).sum(1)
            return answer

    columns = {
        "input_ids": torch.randint(9, (40, 4), generator=RNG),
        "position_ids": torch.arange(4).expand(40, 4),
    }
    given = fit((columns, Y), Placed())
    assert fit(Columns(**columns, y=Y), Placed()).theta_sha256 == given.theta_sha256


def test_texts_and_counters_are_listed_before_training() -> None:
    run = fit(Columns(x=X, mask=MASK, y=Y, idx=list(range(40)), text=["a word"] * 40))
    assert "not used: idx, text (neither input nor target)" in run.summary()
    assert run.theta_sha256 == fit(({"x": X, "mask": MASK}, Y)).theta_sha256
    assert "not used" not in fit((X, Y)).summary()


REFUSED: list[tuple[Any, str]] = [
    (rows(x=X, weights=MASK, y=Y), r"the column 'weights' beside .*forward takes x, mask\); remov"),
    (Columns(x=X, weights=MASK, y=Y), "client 0 has the column 'weights' beside the target 'y'"),
    (rows(x=X, y=Y, label=Y), "columns label and y, any of which could be the target; keep one"),
    (Columns(features=X, other=MASK, y=Y), "the column 'other' beside the target 'y'"),
    ([*rows(x=X, y=Y), {"x": X[0], "mask": X[0], "y": 1}], r"sample 40 has the inputs \['mask'"),
    ([((X[0], X[0]), 0), ((X[0],) * 3, 1)], r"sample 1 has the inputs \[0, 1, 2\] but sample 0"),
]


@pytest.mark.parametrize(("data", "sentence"), REFUSED)
def test_numbers_that_would_be_dropped_are_refused(data: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as error:
        fit(data)
    assert "\n" not in str(error.value)


def test_a_frame_says_which_columns_are_its_targets() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": X[:, 2], "label": X[:, 0]})
    with pytest.raises(ConfigError, match=r"say which: \(frame, 'y'\), or \(frame, \['y', 'label'"):
        federation_from([table])
    two = federation_from([(table, ["label", "y"])]).train
    torch.testing.assert_close(two.x, X[:, :2])
    torch.testing.assert_close(two.y, X[:, [0, 2]])
    one = federation_from([(table, "y")]).train
    assert one.y.shape == (40,)
    assert one.x.shape == (40, 3)
    with pytest.raises(ConfigError, match="column = 'yy' is not known; did you mean 'y'"):
        federation_from([(table, "yy")])
    run = fit((table, ["label", "y"]), nn.Linear(2, 2))
    assert run.objective.d == 6
