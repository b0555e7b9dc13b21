"""Data frames, of pandas or polars: a row is a sample, a column a feature or the target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tunefree.data.tensors import LABELS, WEIGHT, coded, tensor_of
from tunefree.errors import ConfigError, unknown_name

TARGET_FIX = "number the classes from 0, the same for all clients, for example with Series.map"
FEATURE_FIX = (
    "turn it into numbers, for example with pandas.get_dummies over all clients, or drop it"
)


def is_frame(data: Any) -> bool:
    return all(hasattr(data, name) for name in ("columns", "dtypes", "to_numpy", "shape"))


def is_column(data: Any) -> bool:
    """Whether this is a column of a frame: pandas' or polars' Series."""
    return not is_frame(data) and all(hasattr(data, n) for n in ("dtype", "name", "to_numpy"))


def is_names(target: Any) -> bool:
    """Whether these are the names of one column of targets or several."""
    names = [target] if isinstance(target, str) else target
    return isinstance(names, list) and bool(names) and all(isinstance(n, str) for n in names)


def frame_pair(
    frame: Any, who: str, target: str | Sequence[str] = ()
) -> tuple[torch.Tensor, torch.Tensor, tuple[str, ...], tuple[str, ...]]:
    """Features, targets, and the names of features and classes, of a frame with its targets."""
    names = [str(name) for name in frame.columns]
    if target:
        single = isinstance(target, str)
        return with_targets(frame, who, [str(target)] if single else list(target), not single)
    found = [name for name in names if name in LABELS]
    if len(found) > 1:
        raise ConfigError(
            f"{who} has the columns {' and '.join(found)}, any of which could be the target; "
            f"say which: (frame, {found[0]!r}), or (frame, {found}) for a model with several "
            "outputs"
        )
    if not found:
        raise ConfigError(
            f"{who} has the columns {', '.join(names)}, none of which is called "
            f"{', '.join(LABELS[:-1])} or {LABELS[-1]}; rename the target column to 'label', or "
            "give a pair (frame, targets) or (frame, 'column')"
        )
    return with_targets(frame, who, found, several=False)


def with_targets(
    frame: Any, who: str, targets: list[str], several: bool
) -> tuple[torch.Tensor, torch.Tensor, tuple[str, ...], tuple[str, ...]]:
    """The frame with these columns as targets and all others as features."""
    names = [str(name) for name in frame.columns]
    for name in targets:
        if name not in names:
            raise unknown_name("column", name, names)
    features = features_in(frame, targets)
    y, classes = (
        (targets_of(frame, targets, who), ())
        if several
        else target_of(column_of(frame, targets[0]), f"{who}, column {targets[0]!r}")
    )
    return features_of(frame, features, who), y, tuple(features), classes


def features_in(frame: Any, targets: Sequence[str] = ()) -> list[str]:
    """The columns that are neither targets nor weights."""
    return [name for name in map(str, frame.columns) if name not in (*targets, WEIGHT)]


def weights_in(frame: Any, who: str) -> torch.Tensor | None:
    """The column of sample weights, if there is one."""
    if WEIGHT not in map(str, frame.columns):
        return None
    return numbers(column_of(frame, WEIGHT), f"{who}, column {WEIGHT!r}")


def targets_of(frame: Any, names: Sequence[str], who: str) -> torch.Tensor:
    """The columns of these names as targets, side by side."""
    return torch.stack(
        [numbers(column_of(frame, name), f"{who}, column {name!r}") for name in names], dim=1
    )


def features_of(frame: Any, names: Sequence[str], who: str) -> torch.Tensor:
    """The columns of these names as one matrix in torch's default float type."""
    if not names:
        raise ConfigError(
            f"{who} is a frame without a feature; give at least one column of numbers"
        )
    columns = [
        numbers_of(column_of(frame, name), f"{who}, column {name!r}", FEATURE_FIX) for name in names
    ]
    matrix = np.stack(columns, axis=1, dtype=np.float64, casting="unsafe")
    return torch.from_numpy(matrix).to(torch.get_default_dtype())


def target_of(column: Any, who: str) -> tuple[torch.Tensor, tuple[str, ...]]:
    """A column of targets, and the names of the classes if they are words."""
    return coded(column, who) or (numbers(column, who), ())


def numbers(column: Any, who: str) -> torch.Tensor:
    return tensor_of(numbers_of(column, who, TARGET_FIX), who)


def column_of(frame: Any, name: str) -> Any:
    """The one column of that name, whatever type the frame's own names have."""
    at = [i for i, each in enumerate(frame.columns) if str(each) == name]
    if len(at) > 1:
        raise ConfigError(f"a frame has {len(at)} columns {name!r}; give them different names")
    return frame[list(frame.columns)[at[0]]]


def numbers_of(column: Any, who: str, fix: str) -> NDArray[Any]:
    """A column as numbers; missing values are NaN."""
    array = np.asarray(column)
    if array.dtype.kind in "biuf":
        return array
    values = list(column)
    missing = [str(value) in ("<NA>", "None", "nan") for value in values]
    kinds = {type(v).__name__ for v, gone in zip(values, missing, strict=True) if not gone}
    if array.dtype.kind == "O" and kinds <= NUMBERS:
        return np.array(
            [np.nan if gone else float(v) for v, gone in zip(values, missing, strict=True)]
        )
    raise ConfigError(f"{who} contains {' and '.join(sorted(kinds))}, not numbers; {fix}")


NUMBERS = {"int", "float", "bool", "bool_", "Decimal"} | {
    f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)
}


def same_rows(x: Any, y: Any, who: str) -> None:
    """Refuse pandas indices that contain the same rows in a different order."""
    if not all(hasattr(getattr(each, "index", None), "equals") for each in (x, y)):
        return
    if not x.index.equals(y.index) and set(x.index) == set(y.index):
        raise ConfigError(
            f"{who} has inputs and targets whose rows have the same index in another order; pair "
            "them up with y.loc[x.index]"
        )
