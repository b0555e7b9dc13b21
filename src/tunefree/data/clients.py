"""A federation from what a PyTorch user has: arrays, frames, torch and Hugging Face data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from tunefree.data import frames
from tunefree.data.lazy import (
    Items,
    LazySamples,
    Mapped,
    generators,
    joined,
    padded,
    seeded_randomness,
    size_of,
)
from tunefree.data.loaders import Order, opened
from tunefree.data.samples import (
    Federation,
    Images,
    Inputs,
    Partition,
    Samples,
    check_federation,
    check_sizes,
    check_test_size,
    identity,
    starts_of,
    tensors_of,
)
from tunefree.data.tensors import (
    WEIGHT,
    Columns,
    coded,
    columns_of,
    inputs_of,
    is_weight,
    stack,
    stack_inputs,
    targets_of,
    tensor_of,
)
from tunefree.errors import ConfigError

Data: TypeAlias = Any  # a pair (x, y), a frame, a torch Dataset or anything with columns
Prepare: TypeAlias = Callable[[Inputs], Inputs]

ARRAYS = (torch.Tensor, np.ndarray)
ONE = (*ARRAYS, TorchDataset, DataLoader)
IN_MEMORY = 2**31  # bytes of inputs read from data sets in advance; the rest is read when drawn


class Pair(NamedTuple):
    """Inputs and targets of one client, or of the test set."""

    x: Inputs  # only the first sample, if they are read when drawn
    y: torch.Tensor
    pictures: bool = False  # they were PIL images
    prepare: Prepare | None = None  # as given by Samples: how a batch is made
    columns: tuple[str, ...] = ()  # of a frame
    items: Items | Mapped | None = None  # the source, if they are read when drawn
    random: bool = False  # whether they differ at every reading
    unused: tuple[str, ...] = ()  # columns
    words: tuple[str, ...] = ()  # the names of the classes, if the targets are words
    classes: tuple[str, ...] = ()  # those of targets that are numbers
    weights: torch.Tensor | None = None  # of the samples
    order: Order | None = None  # in which a DataLoader's sampler draws them
    batch_size: int = 0  # of a DataLoader


def federation_from(
    clients: Mapping[Any, Data] | Sequence[Data] | tuple[Data, Partition],
    test: Data | None = None,
    classes: int | None = None,
    name: str = "your data",
    prepare: Prepare | None = None,
    takes: Sequence[str] = (),
    client_test: Mapping[Any, Data] | Sequence[Data] | None = None,
) -> Federation:
    """The federation of these clients: data by name, a sequence, or one data set and its Partition.

    Data are (x, y) tensors or arrays, or (x, y, w) with a weight for each sample, a data frame with
    a target column, a torch Dataset of (x, y) items, a DataLoader of one, our Samples, or a data
    set with a label column and an input column; x may be a tuple or a dict of several inputs. A
    data set whose samples differ at every reading, or that is too large for memory, is read when
    samples are drawn. `prepare` turns a raw batch into network input; without it, PIL images become
    floats from 0 to 1 with the channels first, and all else stays as it is. `takes` are the inputs
    that the model's forward names: columns of these names are passed to it. `client_test` are
    held-out data of each client, by name or in the clients' order.

    >>> x, y = torch.zeros(5, 3), torch.tensor([0, 1, 0, 1, 1])
    >>> federation_from([(x, y), (x[:2], y[:2])], classes=2).parts.sizes.tolist()
    [5, 2]
    """
    names: tuple[str, ...] = ()
    if isinstance(clients, tuple) and len(clients) == 2 and isinstance(clients[1], Partition):
        if isinstance(clients[0], DataLoader):
            raise ConfigError(
                "clients is a DataLoader and a partition, which both say who draws what; give "
                "(loader.dataset, partition)"
            )
        whose = ["the training data"]
        pairs, parts = [pair_of(clients[0], "the data set", takes)], clients[1]
        check_reach(parts, len(pairs[0].y))
    else:
        check_sequence(clients)
        names = tuple(map(str, clients)) if isinstance(clients, Mapping) else ()
        given = list(clients.values() if isinstance(clients, Mapping) else clients)
        whose = [f"client {name}" for name in names or range(len(given))]
        pairs, room = [], IN_MEMORY
        for who, data in zip(whose, given, strict=True):
            pairs.append(pair_of(data, who, takes, room))
            room -= 0 if pairs[-1].items else size_of(pairs[-1].x)
        check_sizes([len(pair.y) for pair in pairs], names)
        pairs = consistent(pairs, whose)
        parts = one_each(pairs)
    first = pairs[0]
    if test is not None:
        tested = pair_of(test, "the test set", takes)
        check_test_size(len(tested.y))
        _, tested = consistent([first, tested], ["the training data", "the test set"])
        pairs, whose = [*pairs, tested], [*whose, "the test set"]
    n, others = len(pairs), [first, *own_test_sets(client_test, names, len(parts), takes)]
    whom = [f"client_test[{name}]" for name in (names or range(len(parts)))]
    own = consistent(others, [whose[0], *whom][: len(others)])[1:]
    pairs, labels = with_common_words([*pairs, *own], [*whose, *whom[: len(own)]])
    pairs, own = pairs[:n], pairs[n:]
    pairs, tests = (pairs, []) if test is None else (pairs[:-1], pairs[-1:])
    prepare = prepare or first.prepare or (pixels_to_unit(first.x) if first.pictures else identity)
    held_out = None
    if own:
        whole, theirs = all_samples(own, prepare), weights_of(own, [])
        held_out = Federation(
            whole, one_each(own), None, classes, name, names=names, weights=theirs
        )
    return check_federation(
        Federation(
            train=all_samples(pairs, prepare),
            parts=parts,
            test=None if test is None else all_samples(tests, prepare),
            classes=classes,
            name=name,
            unused=first.unused,
            names=names,
            labels=labels,
            words=any(pair.words for pair in pairs),
            weights=weights_of(pairs, tests),
            batch_size=common_batch_size(pairs, whose),
            columns=first.columns,
            held_out=held_out,
        )
    )


def apart(federation: Federation, words: bool = False) -> Federation:
    """The federation given, refused if what it has needs all clients' data in one place."""
    kinds = {
        "words as targets, which clients must number alike": federation.words and not words,
        "weights of samples": federation.weights is not None,
        "DataLoaders": federation.batch_size,
    }
    for what, has in kinds.items():
        if has:
            raise ConfigError(
                f"the data are {what}, and only tunefree.train takes these; give numbers from 0 as "
                "targets, and data sets"
            )
    return federation


def with_common_words(
    pairs: Sequence[Pair], whose: Sequence[str]
) -> tuple[list[Pair], tuple[str, ...]]:
    """The pairs whose targets are words, as places among the names of all classes, and these."""
    numbered = {pair.classes for pair in pairs}
    if len(numbered - {()}) > 1:
        raise ConfigError(
            "the data sets have different ClassLabels, so one number means several classes; cast "
            "all of them to one"
        )
    words = tuple(sorted({word for pair in pairs for word in pair.words}))
    if not words and len(numbered) == 1:
        return list(pairs), numbered.pop()
    place, result = {word: i for i, word in enumerate(words)}, []
    for who, pair in zip(whose, pairs, strict=True):
        if bool(pair.words) != bool(words):
            raise ConfigError(
                f"{who} has numbers as targets and others have words; give all of them one kind"
            )
        y = torch.tensor([place[word] for word in pair.words])[pair.y] if words else pair.y
        items = replace(pair.items, words=words) if isinstance(pair.items, Items) else pair.items
        result.append(pair._replace(y=y, items=items))
    return result, words


def weights_of(
    pairs: Sequence[Pair], tests: Sequence[Pair]
) -> tuple[torch.Tensor, torch.Tensor | None] | None:
    """The weights of training samples, with mean 1 for every client, and those of test samples."""
    if not any(pair.weights is not None for pair in (*pairs, *tests)):
        return None
    mine = [
        torch.ones(len(p.y)) if p.weights is None else p.weights / p.weights.mean() for p in pairs
    ]
    return torch.cat(mine), next((pair.weights for pair in tests), None)


def common_batch_size(pairs: Sequence[Pair], whose: Sequence[str]) -> int:
    """That of all DataLoaders; 0 if there are none."""
    given = {pair.batch_size: who for who, pair in zip(whose, pairs, strict=False)}
    given.pop(0, None)
    if len(given) > 1:
        (one, who), (other, whom), *_ = given.items()
        raise ConfigError(
            f"{who} is a DataLoader with batches of {one} and {whom} with batches of {other}; give "
            "all of them one batch_size"
        )
    return next(iter(given), 0)


def one_each(pairs: Sequence[Pair]) -> Partition:
    """The partition of samples that follow one another, client by client."""
    parts = Partition([])
    parts.starts = starts_of([len(pair.y) for pair in pairs])
    parts.order = np.arange(parts.starts[-1], dtype=np.int64)
    return parts


def own_test_sets(
    given: Any, names: Sequence[str], clients: int, takes: Sequence[str]
) -> list[Pair]:
    """Held-out data of each client, if there are any."""
    if given is None:
        return []
    if isinstance(given, Mapping) and {*map(str, given)} == {*names}:
        by_name = {str(name): data for name, data in given.items()}
        given = [by_name[name] for name in names]
    if not isinstance(given, list | tuple) or len(given) != clients:
        what = f"{len(given)}" if isinstance(given, list | tuple) else f"a {type(given).__name__}"
        raise ConfigError(
            f"client_test is {what}, and there are {clients} clients; give a list of each client's "
            "own held-out data, in the order of the clients, or a dict with their names"
        )
    whose = [f"client_test[{name}]" for name in (names or range(clients))]
    pairs = [pair_of(data, who, takes) for who, data in zip(whose, given, strict=True)]
    for who, pair in zip(whose, pairs, strict=True):
        if not len(pair.y):
            raise ConfigError(f"{who} has no samples; hold out some of each client's")
    return pairs


def check_sequence(clients: Any) -> None:
    """Refuse what is not a sequence of clients, or a dict of them: one pair, one data set."""
    fix = (
        "give a list of clients, [(x, y), ...], or one data set and a partition, (data, partition)"
    )
    if isinstance(clients, Mapping):
        if {"train", "test"} <= clients.keys():
            raise ConfigError(
                f"clients is a dict of the parts of one data set, {', '.join(map(str, clients))}; "
                "give (data['train'], partition), and data['test'] as the test set"
            )
        if any(isinstance(each, ARRAYS) or frames.is_column(each) for each in clients.values()):
            raise ConfigError(f"clients is one dict of arrays; {fix}, or a dict of clients by name")
        return
    if frames.is_frame(clients) or isinstance(clients, ONE) or column_names(clients):
        raise ConfigError(f"clients is one {type(clients).__name__}; {fix}")
    if isinstance(clients, str) or not hasattr(clients, "__iter__"):
        raise ConfigError(f"clients is of type {type(clients).__name__}; {fix}")
    given = clients if isinstance(clients, tuple | list) else ()
    if any(isinstance(each, ARRAYS) or frames.is_column(each) for each in given):
        what = {1: "one array", 2: "one pair (x, y)"}.get(len(given), f"{len(given)} arrays")
        several = "; a client of several inputs is ((a, b), y)" if len(given) > 2 else ""
        raise ConfigError(f"clients is {what}; {fix}{several}")
    if len(given) == 2 and not isinstance(given[0], list) and is_index(given[1]):
        raise ConfigError(
            "clients is one data set and lists of indices; give (data, partition) with the "
            "partition as tunefree.partition.Partition(lists)"
        )


def is_index(data: Any) -> bool:
    """Whether these are lists of sample indices, one for each client."""
    return isinstance(data, list) and all(
        (isinstance(part, list | range) and all(isinstance(i, int) for i in part))
        or (isinstance(part, ARRAYS) and np.ndim(part) == 1)
        for part in data
    )


def all_samples(pairs: Sequence[Pair], prepare: Prepare) -> Samples:
    """All samples, one client after the other."""
    y = padded([pair.y for pair in pairs])
    orders = tuple(pair.order for pair in pairs)
    if not any(pair.items for pair in pairs) and not any(orders):
        return Samples(joined([pair.x for pair in pairs]), y, prepare)
    sources = tuple(pair.items or Samples(pair.x, pair.y) for pair in pairs)
    starts = starts_of([len(pair.y) for pair in pairs])
    random = any(orders) or any(pair.random for pair in pairs)
    return LazySamples(
        x=sources, y=y, prepare=prepare, starts=starts, varying=random, orders=orders
    )


def pixels_to_unit(x: torch.Tensor) -> Images:
    """Pixels from 0 to 1, as many channels as these images have."""
    channels = x.shape[1] if x.dim() == 4 else 1
    return Images(white=255, mean=(0.0,) * channels, std=(1.0,) * channels)


def pair_of(data: Data, who: str, takes: Sequence[str] = (), room: int = IN_MEMORY) -> Pair:
    """Inputs and targets of equal length; in memory if they are already, or fit into `room`."""
    columns: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    weights: torch.Tensor | None = None
    pictures = False
    x: Inputs
    if isinstance(data, DataLoader):
        return loaded(data, who, takes, room)
    if isinstance(data, Samples):
        return Pair(data.x, data.y, prepare=data.prepare)
    if isinstance(data, tuple) and len(data) == 3 and is_flat(data[2]):
        pair, weights = pair_of(data[:2], who, takes, room), tensor_of(data[2], who)
        if not is_weight(weights):
            raise ConfigError(
                f"{who} has three parts, and the third is not weights, which would be floats; "
                "several inputs are a tuple, ((a, b), y)"
            )
        return pair._replace(weights=checked_weights(weights, len(pair.y), who))
    if is_pair(data) and frames.is_frame(data[0]) and frames.is_names(data[1]):
        x, y, columns, words = frames.frame_pair(data[0], who, data[1])
        weights = frames.weights_in(data[0], who)
    elif is_pair(data):
        y, words = given_targets(data[1], who)
        if isinstance(data[0], np.memmap) and data[0].nbytes > room and len(data[0]) == len(y):
            y = y if y.is_floating_point() else y.long()
            items = Mapped(data[0], y, who)
            return Pair(tensor_of(data[0][:1], who), y, words=words, items=items)
        x, columns = given_inputs(data[0], who)
        weights = frames.weights_in(data[0], who) if frames.is_frame(data[0]) else None
        frames.same_rows(data[0], data[1], who)
    elif frames.is_frame(data):
        x, y, columns, words = frames.frame_pair(data, who)
        weights = frames.weights_in(data, who)
    elif tensors := two_tensors(data):
        x, y = tensors
    elif isinstance(data, Subset) and any(isinstance(i, bool) for i in list_of(data.indices)[:1]):
        raise ConfigError(
            f"{who} is a Subset by a mask, which it takes for samples 0 and 1; give it the places, "
            "mask.nonzero()[:, 0].tolist()"
        )
    elif isinstance(data, Subset) and (tensors := two_tensors(data.dataset)):
        at = torch.as_tensor(list(data.indices), dtype=torch.int64)
        x, y = (tensor[at] for tensor in tensors)
    elif not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        raise ConfigError(f"{who} is of type {type(data).__name__}; {what_to_give(data)}")
    elif (names := column_names(data)) and (
        chosen := columns_to_read(data, names, who, takes, room)
    ):
        if chosen.by_name:
            x = {name: stack(data[name], f"{who}, column {name!r}")[0] for name in chosen.inputs}
        else:
            x, pictures = stack(data[chosen.inputs[0]], f"{who}, column {chosen.inputs[0]!r}")
        given, which = data[chosen.target], f"{who}, column {chosen.target!r}"
        given = given if isinstance(given, ARRAYS) else list(given)
        y, words = coded(given, which) or (stack(given, which)[0], ())
        weights = tensor_of(data[WEIGHT], who) if chosen.weight else None
        unused, classes = chosen.unused, class_names(data, chosen.target)
    else:
        return read_items(Items(data, who, tuple(takes)), room)
    for values in tensors_of(x).values():
        if len(values) != len(y):
            listed = is_pair(data) and isinstance(data[0], list)
            raise ConfigError(
                f"{who} has {len(values)} inputs but {len(y)} targets; they must pair up one to one"
                + "; a model with several inputs gets them as a tuple, ((a, b), y)" * listed
            )
    y = y if y.is_floating_point() else y.long()
    weights = None if weights is None else checked_weights(weights, len(y), who)
    pair = Pair(x, y, pictures, columns=columns, unused=unused, words=words, weights=weights)
    return pair._replace(classes=classes)


def loaded(loader: DataLoader[Any], who: str, takes: Sequence[str], room: int) -> Pair:
    """What a DataLoader yields: read in advance unless it is random or its collate_fn its own."""
    data, collate, places, order = opened(loader, who)
    if len(places) != len(data):
        data = Subset(data, places.tolist())
    if collate is None:
        pair = pair_of(data, who, takes, room)
    else:
        items = Items(data, who, tuple(takes), collate=collate)
        with seeded_randomness(0):
            x, _, _ = items.read([0])
        pair = Pair(x, items.labels()[0], items=items, random=items.is_random())
    return pair._replace(order=order, batch_size=loader.batch_size or 0)


def checked_weights(weights: torch.Tensor, n: int, who: str) -> torch.Tensor:
    """The weights given, as floats."""
    if (
        weights.shape != (n,)
        or not bool((weights >= 0).all())
        or not 0 < float(weights.sum()) < np.inf
    ):
        raise ConfigError(
            f"{who} has weights of shape {tuple(weights.shape)} for {n} samples; give each sample "
            "one that is finite and not negative, and not all of them 0"
        )
    return weights.float()


def is_flat(data: Any) -> bool:
    """Whether this is an array, a column or a list of numbers."""
    listed = isinstance(data, list) and bool(data) and isinstance(data[0], int | float)
    return listed or isinstance(data, ARRAYS) or frames.is_column(data)


def list_of(indices: Any) -> list[Any]:
    """Indices as Python's own numbers."""
    plain: list[Any] = indices.tolist() if isinstance(indices, ARRAYS) else list(indices)
    return plain


def what_to_give(data: Data) -> str:
    if isinstance(data, IterableDataset) or hasattr(data, "__iter__"):
        return (
            "its samples can only be read in sequence, and clients draw them in any order; "
            "give a data set with __getitem__ and __len__, such as list(data)"
        )
    return "give a pair (x, y), a frame, a torch Dataset with a length, or a data set with columns"


def read_items(items: Items, room: int) -> Pair:
    """All items of a data set, or their source if they are too many or random."""
    n = len(items)
    if not n:
        return Pair(torch.empty(0), torch.empty(0, dtype=torch.int64))
    items = items.named()
    listed = isinstance(items.data, list | tuple)  # in memory, and cannot be random
    with seeded_randomness(0):
        (x, y, pictures), first = items.read([0]), items.data[0]
    unused = columns_of(first, items.who, items.takes).unused if isinstance(first, Mapping) else ()
    random = not listed and items.is_random()
    if random or (not listed and n * size_of(x) > room):
        return of_source(items, Pair(x, x, pictures, random=random, unused=unused))
    with seeded_randomness(0):
        before = generators()
        everything, y, pictures = items.read(range(n))
        drew = not listed and generators() != before
    if drew and items.differ_from((*tensors_of(everything).values(), y)):
        return of_source(items, Pair(x, y, pictures, random=True, unused=unused))
    pair = Pair(everything, y, pictures, unused=unused, words=items.words)
    return of_source(items, pair)._replace(items=None) if items.weighted else pair


def of_source(items: Items, pair: Pair) -> Pair:
    """The pair of items that are read when drawn."""
    y, weights = items.labels()
    weights = None if weights is None else checked_weights(weights, len(items), items.who)
    return pair._replace(y=y, items=items, words=items.words, weights=weights)


def columns_to_read(
    data: Data, names: list[str], who: str, takes: Sequence[str], room: int
) -> Columns | None:
    """The columns, unless rows must be read: a transform makes them, or they are too large."""
    format = getattr(data, "format", None)
    if isinstance(format, Mapping) and format.get("type") == "custom":  # Hugging Face's transform
        return None
    try:
        row = data[0]
        chosen = columns_of(row, who, takes)
        large = len(data) * size_of(stack_inputs([chosen.inputs_in(row)], who)[0]) > room
        return None if large else chosen
    except (KeyError, TypeError, IndexError, AttributeError):  # columns but no rows
        return columns_of({name: first_of(data, name) for name in names}, who, takes)


def class_names(data: Data, column: str) -> tuple[str, ...]:
    """What a Hugging Face data set calls the numbers in a column, if it is a ClassLabel."""
    features = getattr(data, "features", None)
    label = features.get(column) if isinstance(features, Mapping) else None
    return tuple(map(str, getattr(label, "names", None) or ()))


def first_of(data: Data, name: str) -> Any:
    """The first value of a column; None if it has no values."""
    try:
        return data[name][0]
    except (KeyError, IndexError, TypeError):
        return None


def is_pair(data: Data) -> bool:
    """Whether this is (x, y) itself; a list may also be a list of (x, y) items."""
    if not isinstance(data, tuple | list) or len(data) != 2:
        return False
    return isinstance(data, tuple) or all(isinstance(v, torch.Tensor | np.ndarray) for v in data)


def given_inputs(x: Any, who: str) -> tuple[Inputs, tuple[str, ...]]:
    """The inputs of a pair, and their columns' names if they are a frame."""
    if not frames.is_frame(x):
        return inputs_of(x, who), ()
    names = tuple(frames.features_in(x))
    return frames.features_of(x, names, who), names


def given_targets(y: Any, who: str) -> tuple[torch.Tensor, tuple[str, ...]]:
    if frames.is_column(y):
        return frames.target_of(y, f"{who}, targets")
    if frames.is_frame(y):
        return frames.targets_of(y, [str(name) for name in y.columns], who), ()
    return targets_of(y, who)


def two_tensors(data: Data) -> tuple[torch.Tensor, ...]:
    """The tensors of a TensorDataset of inputs and targets, which need no reading item by item."""
    return data.tensors if isinstance(data, TensorDataset) and len(data.tensors) == 2 else ()


def column_names(data: Data) -> list[str]:
    """The columns of a Hugging Face data set, or of anything that names them in the same way."""
    if isinstance(data, Mapping):
        return list(map(str, data))
    names = getattr(data, "column_names", None) or getattr(data, "features", None)
    return [str(name) for name in names] if isinstance(names, list | tuple | dict) else []


def consistent(pairs: Sequence[Pair], who: Sequence[str]) -> list[Pair]:
    """The pairs, frames' columns in the first one's order; refuse different shapes or types."""
    first, result = pairs[0], []
    for whose, pair in zip(who, pairs, strict=True):
        if pair.columns and first.columns and pair.columns != first.columns:
            pair = in_order(pair, first.columns, whose, who[0])
        given, expected = tensors_of(pair.x), tensors_of(first.x)
        if list(given) != list(expected):
            raise ConfigError(
                f"{whose} has {', '.join(given)} but {who[0]} has {', '.join(expected)}; give all "
                "of them the same inputs"
            )
        ragged = isinstance(pair.items, Items) and pair.items.collate is not None
        for name in expected if not ragged else ():
            plural = name.replace("input", "inputs", 1)
            check_like(plural, given[name], expected[name], whose, who[0])
        if not ragged:
            check_like("targets", pair.y, first.y, whose, who[0])
        result.append(pair)
    return result


def in_order(pair: Pair, columns: tuple[str, ...], whose: str, first: str) -> Pair:
    """A frame's features in the order of another frame."""
    for name in {*columns} ^ {*pair.columns}:
        has, lacks = (whose, first) if name in pair.columns else (first, whose)
        raise ConfigError(
            f"{has} has a column {name!r} and {lacks} has none; give all frames the same columns"
        )
    at = [pair.columns.index(name) for name in columns]
    return pair._replace(x=pair.x[:, at], columns=columns)


def check_like(
    what: str, value: torch.Tensor, expected: torch.Tensor, whose: str, first: str
) -> None:
    """Refuse different shapes or types."""
    shape, theirs = tuple(value.shape[1:]), tuple(expected.shape[1:])
    if shape != theirs:
        raise ConfigError(
            f"{whose} has {what} of shape {shape} but {first} has {theirs}; give all of them the "
            "same shape"
        )
    if value.dtype != expected.dtype:
        raise ConfigError(
            f"{whose} has {what} of type {value.dtype} but {first} has {expected.dtype}; give all "
            "of them the same type"
        )


def check_reach(parts: Partition, n: int) -> None:
    """Refuse a partition with samples that do not exist."""
    if len(parts.order) and not 0 <= parts.order.min() <= parts.order.max() < n:
        raise ConfigError(
            f"the partition refers to sample {int(parts.order.max())}, but the data set has {n}; "
            "make the partition from this data set's labels"
        )
