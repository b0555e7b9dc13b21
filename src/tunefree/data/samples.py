"""Samples as compact arrays, a data set with its split, and a federation of clients: held-out
samples, and how much the clients differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from tunefree.core import Generator, stream
from tunefree.errors import ConfigError

Index: TypeAlias = NDArray[np.int64]
Inputs: TypeAlias = Any  # a tensor; for a model with several inputs a tuple or dict of tensors
# Targets as they are given -> as the loss needs them.
Targets: TypeAlias = Callable[[torch.Tensor], torch.Tensor]


def identity(x: Inputs) -> Inputs:
    return x


def each(change: Callable[[torch.Tensor], torch.Tensor], x: Inputs) -> Inputs:
    """Inputs with every tensor of them changed.

    >>> each(torch.neg, (torch.ones(1), torch.zeros(1)))
    (tensor([-1.]), tensor([-0.]))
    """
    if isinstance(x, torch.Tensor):
        return change(x)
    if isinstance(x, tuple):
        return tuple(change(tensor) for tensor in x)
    return {name: change(tensor) for name, tensor in x.items()}


def tensors_of(x: Inputs) -> dict[str, torch.Tensor]:
    """The tensors of inputs, by their names in error messages."""
    if isinstance(x, torch.Tensor):
        return {"input": x}
    if isinstance(x, tuple):
        return {f"input {i}": tensor for i, tensor in enumerate(x)}
    return {f"input {name!r}": tensor for name, tensor in x.items()}


def split(x: Inputs, size: int) -> list[Inputs]:
    """The inputs cut into batches of `size` samples."""
    if isinstance(x, torch.Tensor):
        return list(torch.split(x, size))
    if isinstance(x, tuple):
        return list(zip(*(torch.split(tensor, size) for tensor in x), strict=True))
    cuts = zip(*(torch.split(tensor, size) for tensor in x.values()), strict=True)
    return [dict(zip(x, cut, strict=True)) for cut in cuts]


@dataclass(frozen=True)
class Samples:
    """Inputs and targets, stored raw (uint8 stays uint8) until a batch is made."""

    x: Inputs
    y: torch.Tensor
    prepare: Callable[[Inputs], Inputs] = identity  # a raw batch -> network input
    weights: torch.Tensor | None = None  # of samples; in batches, the targets' first column

    lazy: ClassVar[bool] = False  # read only when drawn

    def __len__(self) -> int:
        return len(self.y)

    def batch(self, index: Index | slice, seed: int = 0) -> tuple[Inputs, torch.Tensor]:
        """The samples at these indices, ready for the network; `seed` is for random ones."""
        if self.weights is not None:
            x, y = replace(self, weights=None).batch(index, seed)
            return x, beside(self.weights[index], y)
        if isinstance(index, slice):
            return self.prepare(each(lambda x: x[index], self.x)), self.y[index]
        at = torch.from_numpy(index)  # index_select is ten times quicker than x[at] here
        if isinstance(self.x, torch.Tensor):
            return self.prepare(self.x.index_select(0, at)), self.y.index_select(0, at)
        return self.prepare(each(lambda x: x.index_select(0, at), self.x)), self.y[at]

    def batches(self, size: int) -> Iterator[tuple[Inputs, torch.Tensor]]:
        """All samples in order, `size` at a time."""
        for start in range(0, len(self), size):
            yield self.batch(slice(start, start + size))

    def subset(self, index: Index) -> Samples:
        """The samples at these indices."""
        at = torch.from_numpy(index)
        return Samples(each(lambda x: x[at], self.x), self.y[at], self.prepare)

    def with_targets(self, targets: Targets) -> Samples:
        """These samples with targets as the loss needs them."""
        return replace(self, y=targets(self.y))

    def order(self, part: Index, rng: Generator) -> Index:
        """The samples of a client in the order of its next pass."""
        return rng.permutation(part)

    @property
    def random(self) -> bool:
        """Whether a sample may differ at the next reading."""
        return False

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one prepared sample."""
        return tuple(self.prepare(self.x[:1]).shape[1:])

    @property
    def numbers(self) -> int:
        """How many numbers the raw inputs of one sample are."""
        return sum(tensor[0].numel() for tensor in tensors_of(self.x).values())


def beside(weights: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Weights and targets as columns of one matrix, in which both are exact."""
    return torch.cat([weights.double().unsqueeze(1), y.double().reshape(len(y), -1)], dim=1)


class Partition:
    """Which samples belong to which client: one flat array and where each client's part starts."""

    order: Index
    starts: Index

    def __init__(self, parts: Sequence[Index]) -> None:
        arrays = [np.asarray(part, dtype=np.int64) for part in parts]
        self.order = np.concatenate([np.empty(0, dtype=np.int64), *arrays])
        self.starts = starts_of([len(part) for part in arrays])

    @classmethod
    def by_owner(cls, owner: Index, clients: int) -> Partition:
        """The partition that gives sample j to client owner[j]; a negative owner drops it.

        >>> [part.tolist() for part in Partition.by_owner(np.array([1, 0, -1, 1]), clients=2)]
        [[1], [0, 3]]
        """
        parts = cls([])
        order = np.argsort(owner, kind="stable").astype(np.int64)
        parts.order = order[np.count_nonzero(owner < 0) :]
        parts.starts = starts_of(np.bincount(owner[owner >= 0], minlength=clients))
        return parts

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __iter__(self) -> Iterator[Index]:
        return (self[client] for client in range(len(self)))

    def __getitem__(self, client: int) -> Index:
        if not 0 <= client < len(self):
            raise IndexError(f"client {client} of {len(self)}")
        part: Index = self.order[self.starts[client] : self.starts[client + 1]]
        return part

    @property
    def sizes(self) -> Index:
        """Samples per client."""
        return np.diff(self.starts).astype(np.int64)


def starts_of(sizes: Sequence[int] | Index) -> Index:
    """Where each part starts when parts of these sizes follow one another, and the end."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


class Dataset(NamedTuple):
    """A named data set with its split."""

    name: str
    train: Samples
    test: Samples
    classes: int | None  # None: not a classification task
    model: str  # the model that goes with it by default
    names: tuple[str, ...] = ()  # of the classes
    words: tuple[str, ...] = ()  # of a text's token ids; 0 pads
    groups: Index | None = None  # the natural client of each training sample
    clients: tuple[str, ...] = ()  # the names of these clients, if they have any


@dataclass(frozen=True)
class Images:
    """Grey or colour images of small integers -> standardised floats with a channel axis."""

    white: float  # the largest pixel value
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        x = (x.unsqueeze(1) if x.dim() == 3 else x).to(torch.float32, copy=True)
        if len(self.mean) == 1:
            return x.mul_(1 / (self.white * self.std[0])).sub_(self.mean[0] / self.std[0])
        mean = torch.tensor(self.mean, device=x.device).view(1, -1, 1, 1)
        std = torch.tensor(self.std, device=x.device).view(1, -1, 1, 1)
        return x.div_(self.white * std).sub_(mean / std)


@dataclass(frozen=True)
class Federation:
    """Training samples split across clients, and the test set of the server (or none)."""

    train: Samples
    parts: Partition
    test: Samples | None
    classes: int | None  # None: not a classification task
    name: str = "your data"
    unused: tuple[str, ...] = ()  # columns that are neither input nor target
    names: tuple[str, ...] = ()  # of the clients, if they have any
    labels: tuple[str, ...] = ()  # the names of the classes, if they have any
    words: bool = False  # whether the targets were given as these names
    weights: tuple[torch.Tensor, torch.Tensor | None] | None = None  # of training, test samples
    batch_size: int = 0  # of the DataLoaders given; 0 if there is none
    columns: tuple[str, ...] = ()  # of frames, in the order of the inputs
    held_out: Federation | None = None  # each client's own test set

    def __len__(self) -> int:
        return len(self.parts)

    def called(self, client: int) -> Any:
        """The client's name, or its number if clients have no names."""
        return self.names[client] if self.names else client


def check_federation(federation: Federation) -> Federation:
    """The federation given, after checking sizes, labels and finite numbers."""
    check_sizes(federation.parts.sizes, federation.names)
    if federation.test is not None:
        check_test_size(len(federation.test))
    for role, samples in (("training", federation.train), ("test", federation.test)):
        if samples is not None:
            check_samples(role, samples, federation)
    if federation.held_out is not None:
        check_samples("held-out", federation.held_out.train, federation.held_out)
    return federation


def check_sizes(sizes: Sequence[int] | Index, names: Sequence[str] = ()) -> None:
    """Refuse no clients, and empty ones."""
    if not len(sizes):
        raise ConfigError("clients = [] has no client; give at least one")
    if 0 in sizes:
        at = int(np.argmin(sizes))
        empty = names[at] if names else at
        raise ConfigError(f"client {empty} has no samples; remove it or give it data")


def check_test_size(n: int) -> None:
    if not n:
        raise ConfigError("the test set has no samples; give some, or None for no test set")


def check_samples(role: str, samples: Samples, federation: Federation) -> None:
    y, classes = samples.y, federation.classes
    inputs = {} if samples.lazy else tensors_of(samples.x)  # lazy ones are checked when read

    def holder(bad: torch.Tensor) -> str:
        """Where the first bad sample is: client and index as the user gave them."""
        at = int(bad.nonzero()[0, 0])
        if role == "test":
            return f"test sample {at}"
        place = int(np.flatnonzero(federation.parts.order == at)[0])
        client = int(np.searchsorted(federation.parts.starts, place, side="right") - 1)
        place -= int(federation.parts.starts[client])
        kind = "held-out " * (role == "held-out")
        return f"client {federation.called(client)}, {kind}sample {place}"

    for name, values in (*inputs.items(), ("target", y)):
        if len(values) != len(y):
            raise ConfigError(
                f"{role} data has {len(values)} inputs but {len(y)} targets; they must pair up one "
                "to one"
            )
        if values.is_floating_point():
            bad = ~torch.isfinite(values.reshape(len(values), -1)).all(dim=1)
            if bad.any():
                raise ConfigError(
                    f"{holder(bad)} has a non-finite {name} (NaN or infinity); clean it or drop it"
                )
    if classes is not None and len(y):
        bad = (y < 0) | (y >= classes)
        if bad.any():
            label = int(y[bad][0])
            fix = "relabel the data or use a model with more outputs"
            raise ConfigError(
                f"{holder(bad)} has label {label}, but the {classes} classes are labelled 0 to "
                f"{classes - 1}; "
                + (fix if label >= 0 else "drop samples without a label, as they teach nothing")
            )


def held_out(
    train: Samples, parts: Partition, share: float, seed: int
) -> tuple[Partition, Samples]:
    """Each client's remaining samples, and the share that each holds out.

    Each client holds out its own samples, after the partition: a real federation could do the same,
    and the clients stay as heterogeneous as they are without it. All keep at least one.
    """
    if not 0 < share < 1:
        raise ConfigError(
            "must be between 0 and 1", "0.1 is usual", setting="validation", value=share
        )
    left, aside = divided(parts, share, seed, "validation")
    return left, train.subset(np.sort(aside.order))


def with_own_tests(federation: Federation, share: float, seed: int) -> Federation:
    """The federation whose clients each hold out a share of their samples to be scored on."""
    if not share or federation.held_out is not None:
        return federation
    left, aside = divided(federation.parts, share, seed, "client_test")
    own = replace(federation, parts=aside, test=None)
    return replace(federation, parts=left, held_out=own)


def divided(parts: Partition, share: float, seed: int, setting: str) -> tuple[Partition, Partition]:
    """Each client's remaining samples, and those held out."""
    left, aside = [], []
    for client, part in enumerate(parts):
        mixed: Index = stream(seed, setting, client).permutation(part)
        cut = min(int(np.ceil(share * len(part))), len(part) - 1)
        aside.append(mixed[:cut])
        left.append(np.sort(mixed[cut:]))
    if not any(map(len, aside)):
        raise ConfigError(
            "holds out nothing, as every client has a single sample",
            "use fewer clients",
            setting=setting,
            value=share,
        )
    return Partition(left), Partition(aside)


class Heterogeneity(NamedTuple):
    """How much the clients differ."""

    counts: Index  # client by class
    smallest: int  # client, in samples
    median: float
    largest: int
    classes_per_client: float  # mean number of classes that a client has
    distance: float  # mean total variation from a client's label shares to those of all clients


def heterogeneity(parts: Partition, y: ArrayLike, classes: int | None = None) -> Heterogeneity:
    """The client-by-class counts and statistics of them; targets without classes count as one.

    >>> heterogeneity(Partition([np.array([0, 1]), np.array([2, 3])]), [0, 0, 1, 1]).distance
    0.5
    """
    labels = np.asarray(y)
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        labels, classes = np.zeros(len(labels), dtype=np.int64), 1
    classes = int(labels.max(initial=0)) + 1 if classes is None else classes
    clients, sizes = len(parts), parts.sizes
    place = np.repeat(np.arange(clients) * classes, sizes) + labels[parts.order]
    counts = np.bincount(place, minlength=clients * classes).reshape(clients, classes)
    overall = counts.sum(axis=0) / max(1, counts.sum())
    distance, classes_held = np.zeros(clients), np.zeros(clients)
    for column, share in zip(counts.T, overall, strict=True):  # by class: clients may be a million
        distance += np.abs(column / np.maximum(sizes, 1) - share) / 2
        classes_held += column > 0
    return Heterogeneity(
        counts=counts,
        smallest=int(sizes.min()),
        median=float(np.median(sizes)),
        largest=int(sizes.max()),
        classes_per_client=float(classes_held.mean()),
        distance=float(distance.mean()),
    )
