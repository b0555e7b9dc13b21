"""Tensors from lists, arrays, images, and samples of several inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from tunefree.data.samples import Inputs
from tunefree.errors import ConfigError

LABELS = ("label", "labels", "target", "targets", "y", "fine_label")
INPUTS = ("image", "img", "pixel_values", "input_ids", "tokens", "x", "features")
# A tokenizer's columns, passed by keyword.
WITH_INPUT_IDS = ("input_ids", "attention_mask", "token_type_ids")


def tensor_of(values: Any, who: str, least: int = 1) -> torch.Tensor:
    """The values as a tensor of numbers; NumPy's float64 becomes torch's default float type."""
    try:
        if isinstance(values, torch.Tensor):
            tensor = values.detach()
        else:
            array = np.ascontiguousarray(values) if np.ndim(values) else np.asarray(values)
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


def item_parts(item: Any, i: int, who: str) -> tuple[Any, Any]:
    """Inputs and target of one item, which is (x, y) or a dict of named columns."""
    if isinstance(item, Mapping):
        names, label = input_and_label(list(item), f"{who}, sample {i}")
        one = isinstance(names, str)
        return (item[names] if one else {name: item[name] for name in names}), item[label]
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise ConfigError(
            f"{who}, sample {i} is of type {type(item).__name__}; a data set must give (x, y), or "
            "((a, b), y) for a model with several inputs"
        )
    return item[0], item[1]


def input_and_label(names: list[str], who: str) -> tuple[str | list[str], str]:
    """Which column is the input and which the target; a tokenizer's columns become keywords."""
    label = next((name for name in LABELS if name in names), None)
    others = [name for name in names if name not in LABELS]
    known = next((name for name in INPUTS if name in others), None)
    chosen = known or (others[0] if len(others) == 1 else None)
    if label is None or chosen is None:
        raise ConfigError(
            f"{who} has the columns {', '.join(names)}; name the target column one of "
            f"{', '.join(LABELS)} and the input column one of {', '.join(INPUTS)}"
        )
    together = [name for name in WITH_INPUT_IDS if name in names]
    return (together if chosen == "input_ids" and len(together) > 1 else chosen), label


def stack_inputs(values: Sequence[Any], who: str) -> tuple[Inputs, bool]:
    """The inputs of several samples, and whether they were PIL images."""
    first = values[0] if len(values) else None
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


def stack(values: Any, who: str) -> tuple[torch.Tensor, bool]:
    """The values as one tensor, and whether they were PIL images (whose channels go first)."""
    if isinstance(values, torch.Tensor | np.ndarray):
        return tensor_of(values, who), False
    values = list(values)
    pictures = bool(values) and hasattr(values[0], "getbands")
    if pictures:
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
