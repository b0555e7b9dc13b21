"""Tensors from lists, arrays, images, and samples of several inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from tunefree.data.samples import Inputs
from tunefree.errors import ConfigError

LABELS = ("label", "labels", "target", "targets", "y", "fine_label")
INPUTS = ("image", "img", "pixel_values", "input_ids", "tokens", "x", "features")
# A tokenizer's columns, passed by keyword.
WITH_INPUT_IDS = ("input_ids", "attention_mask", "token_type_ids")
COUNTERS = ("id", "idx", "index")  # of rows: numbers that nobody learns from
OF_8_BITS = ("L", "LA", "RGB", "RGBA", "CMYK", "YCbCr", "HSV")  # PIL's modes
WEIGHT = "sample_weight"  # the column of how much each sample counts


class Columns(NamedTuple):
    """What the columns of a data set are used for."""

    inputs: tuple[str, ...]
    target: str
    by_name: bool = False  # whether the inputs are passed as keywords
    unused: tuple[str, ...] = ()
    weight: bool = False  # whether there is a column of sample weights

    def inputs_in(self, item: Mapping[str, Any]) -> Any:
        """The inputs among the columns, or among the values of an item."""
        if self.by_name:
            return {name: item[name] for name in self.inputs}
        return item[self.inputs[0]]


def tensor_of(values: Any, who: str, least: int = 1) -> torch.Tensor:
    """The values as a tensor of numbers; NumPy's float64 becomes torch's default float type."""
    if why := unusable(values):
        raise ConfigError(f"{who} has a {why}")
    try:
        if isinstance(values, torch.Tensor):
            tensor = values.detach()
        else:
            array = np.ascontiguousarray(values) if np.ndim(values) else np.asarray(values)
            array = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
            tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
            tensor = tensor.to(torch.get_default_dtype()) if tensor.is_floating_point() else tensor
    except (TypeError, ValueError):
        kind = type(values).__name__
        raise ConfigError(
            f"{who} contains values of type {kind} that are not numbers of one shape; turn them "
            "into numbers first (texts into token ids, for example)"
        ) from None
    if tensor.dim() < least:
        raise ConfigError(f"{who} is one number where a list of samples is expected")
    return tensor


def unusable(values: Any) -> str:
    """What these values are that cannot be used, and what to give instead; empty if they can."""
    if isinstance(values, torch.Tensor):
        if values.is_nested:
            return "nested tensor; pad it with torch.nested.to_padded_tensor"
        if values.layout != torch.strided:
            return "sparse tensor; make it dense with .to_dense()"
        if values.is_quantized:
            return "quantized tensor; give floats, .dequantize()"
        return "tensor without numbers; make it on the cpu, not as meta" * values.is_meta
    if hasattr(values, "toarray"):
        return "sparse matrix; make it dense with .toarray()"
    masked = isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values)
    return "masked array; fill it with .filled(), or drop what is masked" * masked


def coded(values: Any, who: str) -> tuple[torch.Tensor, tuple[str, ...]] | None:
    """Words as places among their sorted names, and these; None if the values are not words.

    >>> coded(["ill", "well", "ill"], "client 0")
    (tensor([0, 1, 0]), ('ill', 'well'))
    """
    listed = isinstance(values, list | tuple)
    if isinstance(values, torch.Tensor) or (listed and not any(isinstance(v, str) for v in values)):
        return None
    array = np.asarray(values, dtype=object) if listed else np.asarray(values)
    if array.dtype.kind not in "USTO" or array.size != sum(array.shape[:1]):
        return None
    words = array.reshape(-1).tolist()
    if not any(isinstance(word, str) for word in words):
        return None
    for i, word in enumerate(words):
        if not isinstance(word, str):
            raise ConfigError(
                f"{who}, sample {i} has the label {word!r} and others have words; give every "
                "sample its class by name, or drop it"
            )
    names, y = np.unique(words, return_inverse=True)
    return torch.from_numpy(y.astype(np.int64)), tuple(names.tolist())


def targets_of(values: Any, who: str) -> tuple[torch.Tensor, tuple[str, ...]]:
    """Targets as a tensor, and the names of the classes if they are words."""
    return coded(values, who) or (tensor_of(values, who), ())


def inputs_of(x: Any, who: str) -> Inputs:
    """All inputs of a client: one tensor, or as many as there are in a tuple or a dict."""
    if isinstance(x, Mapping):
        return {
            str(name): tensor_of(values, f"{who}, input {name!r}") for name, values in x.items()
        }
    if several(x):
        return tuple(tensor_of(values, f"{who}, input {i}") for i, values in enumerate(x))
    return tensor_of(x, who)


def several(x: Any) -> bool:
    """Whether these are several inputs by position: a tuple of tensors or arrays."""
    return isinstance(x, tuple) and any(isinstance(v, torch.Tensor | np.ndarray) for v in x)


def item_parts(item: Any, who: str, takes: Sequence[str] = ()) -> tuple[Any, Any, Any]:
    """Inputs, target and weight of one item, (x, y), (x, y, w) or a dict of named columns."""
    if isinstance(item, Mapping):
        columns = columns_of(item, who, takes)
        weight = item[WEIGHT] if columns.weight else None
        return columns.inputs_in(item), item[columns.target], weight
    if not isinstance(item, tuple | list) or len(item) not in (2, 3):
        raise ConfigError(
            f"{who} is of type {type(item).__name__}; a data set must give (x, y), or "
            "((a, b), y) for a model with several inputs"
        )
    if len(item) == 3 and not is_weight(item[2]):
        raise ConfigError(
            f"{who} has three parts, and the third is not a weight, which would be a float; give "
            "(x, y), or ((a, b), y) for a model with several inputs"
        )
    return item[0], item[1], item[2] if len(item) == 3 else None


def is_weight(value: Any) -> bool:
    """Whether this is a float, or several: labels, places and texts are none."""
    if isinstance(value, torch.Tensor):
        return value.is_floating_point()
    return isinstance(value, float) or getattr(value, "dtype", np.dtype(int)).kind == "f"


def columns_of(row: Mapping[str, Any], who: str, takes: Sequence[str] = ()) -> Columns:
    """What each column of this row is for; `takes` are the inputs that the model's forward names.

    Without a name that forward knows, the one input is found by its usual names. Numbers that would
    be neither input nor target are refused; texts and counters are unused.
    """
    found = [name for name in LABELS if name in row]
    if len(found) > 1:
        found = [name for name in found if name not in takes]
    if len(found) > 1:
        raise ConfigError(
            f"{who} has the columns {' and '.join(found)}, any of which could be the target; keep "
            "one, or make it one column of several numbers if the model has several outputs"
        )
    others = [name for name in row if name not in (*found, WEIGHT)]
    inputs = [name for name in others if name in takes] or usual_inputs(others)
    if not found or not inputs:
        raise ConfigError(
            f"{who} has the columns {', '.join(row)}; name the target column one of "
            f"{', '.join(LABELS)} and the input columns as the model's forward does, or one of "
            f"{', '.join(INPUTS)}"
        )
    unused = [name for name in others if name not in inputs]
    kinds = (bool, int, float, torch.Tensor, np.ndarray, np.number)
    lost = [name for name in unused if isinstance(row[name], kinds) and name not in COUNTERS]
    if lost:
        named = f" (its forward takes {', '.join(takes)})" if takes else ""
        raise ConfigError(
            f"{who} has the column {lost[0]!r} beside the target {found[0]!r} and the input "
            f"{' and '.join(map(repr, inputs))}, and the model takes no input of that name{named}; "
            "remove the column, or let forward take it"
        )
    by_name = len(inputs) > 1 or (inputs[0] in takes and inputs[0] != takes[0])
    return Columns(tuple(inputs), found[0], by_name, tuple(unused), WEIGHT in row)


def usual_inputs(names: Sequence[str]) -> list[str]:
    """The columns that are inputs by their usual names, or as the only one."""
    known = next((name for name in INPUTS if name in names), None)
    if known == "input_ids":
        return [name for name in WITH_INPUT_IDS if name in names]
    return [known] if known else list(names) if len(names) == 1 else []


def stack_inputs(values: Sequence[Any], who: str) -> tuple[Inputs, bool]:
    """The inputs of several samples, and whether they were PIL images."""
    first = values[0] if len(values) else None
    for i, value in enumerate(values):
        if inputs_in(value) != inputs_in(first):
            raise ConfigError(
                f"{who}, sample {i} has the inputs {inputs_in(value)} but sample 0 has "
                f"{inputs_in(first)}; give all samples the same"
            )
    if isinstance(first, Mapping):
        named = {
            name: stack([value[name] for value in values], f"{who}, input {name!r}")[0]
            for name in first
        }
        return named, False
    if several(first):
        return tuple(
            stack([value[i] for value in values], f"{who}, input {i}")[0]
            for i in range(len(values[0]))
        ), False
    return stack(values, who)


def inputs_in(x: Any) -> list[Any]:
    """The names or the places of one sample's inputs; none if it is a single one."""
    return sorted(x) if isinstance(x, Mapping) else list(range(len(x))) if several(x) else []


def stack(values: Any, who: str) -> tuple[torch.Tensor, bool]:
    """The values as one tensor, and whether they were PIL images (whose channels go first)."""
    if isinstance(values, torch.Tensor | np.ndarray):
        return tensor_of(values, who), False
    values = list(values)
    pictures = bool(values) and hasattr(values[0], "getbands")
    if pictures:
        if odd := [value.mode for value in values if value.mode not in OF_8_BITS]:
            raise ConfigError(
                f"{who} has pictures in mode {odd[0]!r}, whose numbers are not shades from 0 to "
                "255; turn them into such with .convert('RGB') or .convert('L'), or into tensors"
            )
        arrays = [np.asarray(value) for value in values]
        values = [array.transpose(2, 0, 1) if array.ndim == 3 else array for array in arrays]
    if not values or isinstance(values[0], bool | int | float):
        return tensor_of(values, who), False
    tensors = [tensor_of(value, who, least=0) for value in values]
    for i, tensor in enumerate(tensors):
        if tensor.shape != tensors[0].shape:
            raise ConfigError(
                f"{who}, sample {i} has shape {tuple(tensor.shape)} but sample 0 has "
                f"{tuple(tensors[0].shape)}; pad or resize them to one shape"
            )
    return torch.stack(tensors), pictures
