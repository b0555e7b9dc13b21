"""A federation from what a PyTorch user has: arrays, torch data sets or Hugging Face data sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch.utils.data import DataLoader, Subset, TensorDataset

from tunefree.data.samples import (
    Federation,
    Images,
    Partition,
    Samples,
    check_federation,
    check_sizes,
    identity,
    starts_of,
)
from tunefree.errors import ConfigError

Data: TypeAlias = Any  # a pair (x, y), a torch Dataset or anything with columns
Prepare: TypeAlias = Callable[[torch.Tensor], torch.Tensor]

LABELS = ("label", "labels", "target", "targets", "y", "fine_label")
INPUTS = ("image", "img", "pixel_values", "input_ids", "tokens", "x", "features")


class Pair(NamedTuple):
    """Inputs and targets of one client, or of the test set."""

    x: torch.Tensor
    y: torch.Tensor
    pictures: bool = False  # they were PIL images
    prepare: Prepare | None = None  # how Samples say that a batch is made


def federation_from(
    clients: Sequence[Data] | tuple[Data, Partition],
    test: Data | None = None,
    classes: int | None = None,
    name: str = "your data",
    prepare: Prepare | None = None,
) -> Federation:
    """The federation of these clients: a sequence of data, or one data set and its Partition.

    Data are (x, y) tensors or arrays, a torch Dataset of (x, y) items, our Samples, or a data set
    with a label column and an input column. `prepare` makes network input of a raw batch; without
    it, PIL images become floats from 0 to 1 with the channels first, and all else stays as it is.

    >>> x, y = torch.zeros(5, 3), torch.tensor([0, 1, 0, 1, 1])
    >>> federation_from([(x, y), (x[:2], y[:2])], classes=2).parts.sizes.tolist()
    [5, 2]
    """
    if isinstance(clients, tuple) and len(clients) == 2 and isinstance(clients[1], Partition):
        whole, parts = pair_of(clients[0], "the data set"), clients[1]
        check_reach(parts, len(whole.y))
    else:
        pairs = [pair_of(data, f"client {i}") for i, data in enumerate(clients)]
        check_sizes([len(pair.y) for pair in pairs])
        check_alike(pairs, [f"client {i}" for i in range(len(pairs))])
        whole = Pair(
            torch.cat([pair.x for pair in pairs]),
            torch.cat([pair.y for pair in pairs]),
            pairs[0].pictures,
            pairs[0].prepare,
        )
        parts = Partition([])
        parts.order = np.arange(len(whole.y), dtype=np.int64)
        parts.starts = starts_of([len(pair.y) for pair in pairs])
    test_pair = None if test is None else pair_of(test, "the test set")
    if test_pair is not None:
        check_alike([whole, test_pair], ["the training data", "the test set"])
    prepare = prepare or whole.prepare or (pixels_to_unit(whole.x) if whole.pictures else identity)
    return check_federation(
        Federation(
            train=Samples(whole.x, whole.y, prepare),
            parts=parts,
            test=test_pair and Samples(test_pair.x, test_pair.y, prepare),
            classes=classes,
            name=name,
        )
    )


def pixels_to_unit(x: torch.Tensor) -> Images:
    """Pixels from 0 to 1, as many channels as these images have."""
    channels = x.shape[1] if x.dim() == 4 else 1
    return Images(white=255, mean=(0.0,) * channels, std=(1.0,) * channels)


def pair_of(data: Data, who: str) -> Pair:
    """Inputs and targets as two tensors of equal length."""
    pictures = False
    if isinstance(data, DataLoader):
        raise ConfigError(f"{who} is a DataLoader, which already makes batches; give its .dataset")
    if isinstance(data, Samples):
        return Pair(data.x, data.y, prepare=data.prepare)
    if is_pair(data):
        x, y = (tensor_of(values, who) for values in data)
    elif tensors := two_tensors(data):
        x, y = tensors
    elif isinstance(data, Subset) and (tensors := two_tensors(data.dataset)):
        at = torch.as_tensor(list(data.indices), dtype=torch.int64)
        x, y = (tensor[at] for tensor in tensors)
    elif names := column_names(data):
        first, label = input_and_label(names, who)
        x, pictures = stack(data[first], f"{who}, column {first!r}")
        y, _ = stack(data[label], f"{who}, column {label!r}")
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        items = [checked_item(data[i], i, who) for i in range(len(data))]
        x, pictures = stack([item[0] for item in items], who)
        y, _ = stack([item[1] for item in items], who)
    else:
        raise ConfigError(
            f"{who} is of type {type(data).__name__}; give a pair (x, y), a torch Dataset with a "
            "length, or a data set with columns"
        )
    if len(x) != len(y):
        raise ConfigError(
            f"{who} has {len(x)} inputs but {len(y)} targets; they must pair up one to one"
        )
    return Pair(x, y if y.is_floating_point() else y.long(), pictures)


def is_pair(data: Data) -> bool:
    """Whether this is (x, y) itself; a list may also be a list of (x, y) items."""
    if not isinstance(data, tuple | list) or len(data) != 2:
        return False
    return isinstance(data, tuple) or all(isinstance(v, torch.Tensor | np.ndarray) for v in data)


def two_tensors(data: Data) -> tuple[torch.Tensor, ...]:
    """The tensors of a TensorDataset of inputs and targets, which need no reading item by item."""
    return data.tensors if isinstance(data, TensorDataset) and len(data.tensors) == 2 else ()


def column_names(data: Data) -> list[str]:
    """The columns of a Hugging Face data set, or of anything that says them in the same way."""
    names = getattr(data, "column_names", None) or getattr(data, "features", None)
    return [str(name) for name in names] if isinstance(names, list | tuple | dict) else []


def input_and_label(names: list[str], who: str) -> tuple[str, str]:
    """Which column is the input and which the target."""
    label = next((name for name in LABELS if name in names), None)
    others = [name for name in names if name not in LABELS]
    known = next((name for name in INPUTS if name in others), None)
    chosen = known or (others[0] if len(others) == 1 else None)
    if label is None or chosen is None:
        raise ConfigError(
            f"{who} has the columns {', '.join(names)}; name the target column one of "
            f"{', '.join(LABELS)} and the input column one of {', '.join(INPUTS)}"
        )
    return chosen, label


def checked_item(item: Any, i: int, who: str) -> Any:
    """The same item, once it is a pair (x, y)."""
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise ConfigError(
            f"{who}, sample {i} is of type {type(item).__name__}; a data set must give (x, y)"
        )
    return item


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
            f"{who} holds values of type {kind} that are not numbers of one shape; turn them into "
            "numbers first (texts into token ids, for example)"
        ) from None
    if tensor.dim() < least:
        raise ConfigError(f"{who} holds one number where a list of samples is expected")
    return tensor


def check_alike(pairs: Sequence[Pair], who: Sequence[str]) -> None:
    """Nothing, once all inputs and all targets have one shape and one type."""
    for what, values in (("inputs", [p.x for p in pairs]), ("targets", [p.y for p in pairs])):
        for each, value in zip(who, values, strict=True):
            shape, first = tuple(value.shape[1:]), tuple(values[0].shape[1:])
            if shape != first:
                raise ConfigError(
                    f"{each} has {what} of shape {shape} but {who[0]} has {first}; give all of "
                    "them the same shape"
                )
            if value.dtype != values[0].dtype:
                raise ConfigError(
                    f"{each} has {what} of type {value.dtype} but {who[0]} has {values[0].dtype}; "
                    "give all of them the same type"
                )


def check_reach(parts: Partition, n: int) -> None:
    """Nothing, once the partition speaks of samples that exist."""
    if len(parts.order) and not 0 <= parts.order.min() <= parts.order.max() < n:
        raise ConfigError(
            f"the partition speaks of sample {int(parts.order.max())}, but the data set has {n}; "
            "make the partition from this data set's labels"
        )
