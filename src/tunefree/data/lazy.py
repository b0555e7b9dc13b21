"""Samples that are read when drawn: random augmentation, and data sets larger than memory.

The random numbers that a data set draws from torch, NumPy and Python are seeded while it is
read, so that the same draw gives the same samples in every process and after every resume.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Subset

from tunefree.core import Generator
from tunefree.data.samples import Index, Inputs, Samples, Targets, beside, identity, tensors_of
from tunefree.data.tensors import inputs_of, item_parts, stack, stack_inputs, tensor_of
from tunefree.errors import ConfigError, failure_of

TRIED = 32  # samples read several times to see whether they are random
AT_ONCE = 200  # samples read for their targets
FILL = -100  # beside targets of unequal length, which torch's losses ignore


@contextmanager
def seeded_randomness(seed: int) -> Iterator[None]:
    """Seed all random numbers that a data set may draw; afterwards restore the generators."""
    python, numpy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - what augmentations draw from
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        torch.set_rng_state(cpu)


def generators() -> tuple[object, ...]:
    """The state of the generators that a data set may draw from."""
    numpy = np.random.get_state()  # noqa: NPY002
    place = [each.tobytes() if isinstance(each, np.ndarray) else each for each in numpy]
    return random.getstate(), place, torch.get_rng_state().numpy().tobytes()


@dataclass(frozen=True)
class Items:
    """A map-style data set and how to read some of its items."""

    data: Any  # __len__, and __getitem__ that gives (x, y) or a dict with a label
    who: str  # whose data it is, for error messages
    takes: tuple[str, ...] = ()  # the inputs that the model's forward names, if known
    words: tuple[str, ...] = ()  # the names of the classes, if its targets are words
    collate: Callable[[list[Any]], Any] | None = None  # makes a batch of items

    def __len__(self) -> int:
        return len(self.data)

    def read(self, index: Sequence[int] | Index) -> tuple[Inputs, torch.Tensor, bool]:
        """Inputs, targets, and whether the inputs were PIL images."""
        if self.collate is not None:
            return *self._collated(self.collate, index), False
        items = [self._parts(int(i)) for i in index]
        x, pictures = stack_inputs([x for x, _, _ in items], self.who)
        y, _ = stack([y for _, y, _ in items], self.who)
        return x, y if y.is_floating_point() else y.long(), pictures

    def _collated(
        self, collate: Callable[[list[Any]], Any], index: Sequence[int] | Index
    ) -> tuple[Inputs, torch.Tensor]:
        items = [self._item(int(i)) for i in index]
        try:
            batch = collate(items)
        except Exception as error:
            raise ConfigError(
                f"{self.who} has a collate_fn that failed with {failure_of(error)}"
            ) from error
        x, y, weight = item_parts(batch, f"{self.who}, a batch of its collate_fn", self.takes)
        x = inputs_of(tuple(x) if isinstance(x, list) else x, self.who)
        y = tensor_of(y, self.who)
        if weight is not None or {len(part) for part in (y, *tensors_of(x).values())} != {
            len(items)
        }:
            raise ConfigError(
                f"{self.who} has a collate_fn that does not return inputs and one target for each "
                "sample; return (x, y), each as long as the batch"
            )
        return x, y if y.is_floating_point() else y.long()

    def _item(self, i: int) -> Any:
        try:
            return self.data[i]
        except Exception as error:
            raise ConfigError(
                f"{self.who}, sample {i} cannot be read: its data set failed with "
                f"{failure_of(error)}"
            ) from error

    def _parts(self, i: int) -> tuple[Any, Any, Any]:
        """Inputs, target and weight of one sample."""
        x, y, weight = item_parts(self._item(i), f"{self.who}, sample {i}", self.takes)
        if not self.words:
            return x, y, weight
        if y not in self.words:
            raise ConfigError(f"{self.who}, sample {i} has the label {y!r} and others have words")
        return x, self.words.index(y), weight

    def batch(self, index: Index) -> tuple[Inputs, torch.Tensor]:
        """A training batch, checked for non-finite numbers, as data in memory is in advance."""
        x, y, _ = self.read(index)
        return finite(x, y, index, self.who)

    def is_random(self) -> bool:
        """Whether a sample differs from one reading to the next, depending on random numbers."""
        tried = self.tried()
        first, other, again = (self._at_seed(seed, tried) for seed in (0, 1, 0))
        if not equal(first, again):
            raise ConfigError(
                f"{self.who} gives different values for a sample at every reading, although the "
                "random numbers of torch, numpy.random and random are seeded, so no run could be "
                "repeated; draw from these, or seed its own generator in __getitem__ with "
                "int(torch.randint(2**31, ()))"
            )
        return not equal(first, other)

    def differ_from(self, values: Sequence[torch.Tensor]) -> bool:
        """Whether all samples read with other random numbers are not these."""
        return not equal(values, self._at_seed(1, range(len(self))))

    def tried(self) -> list[int]:
        """Some samples from the whole data set, which may be sorted by class."""
        places = np.linspace(0, len(self) - 1, min(TRIED, len(self)))
        return [int(place) for place in places]

    def _at_seed(self, seed: int, index: Sequence[int]) -> tuple[torch.Tensor, ...]:
        with seeded_randomness(seed):
            x, y, _ = self.read(index)
        return (*tensors_of(x).values(), y)

    @property
    def weighted(self) -> bool:
        """Whether its items have weights."""
        return self.collate is None and self._first()[2] is not None

    def _first(self) -> tuple[Any, Any, Any]:
        with seeded_randomness(0):
            return self._parts(0)

    def named(self) -> Items:
        """These items with the names of their classes, if their targets are words."""
        if self.collate is not None or not isinstance(self._first()[1], str):
            return self
        with seeded_randomness(0):
            found = {self._parts(i)[1] for i in range(len(self))}
        return replace(self, words=tuple(sorted(str(w) for w in found if isinstance(w, str))))

    def labels(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """All targets: those that the data set lists, if its items agree, or read one by one.

        Beside them are the weights of the samples, if they have any.
        """
        if self.collate is not None:
            cuts = np.split(np.arange(len(self)), range(AT_ONCE, len(self), AT_ONCE))
            with seeded_randomness(0):
                return padded([self.read(cut)[1] for cut in cuts]), None
        listed = None if self.weighted or self.words else listed_labels(self.data)
        tried = self.tried()
        if listed is not None and len(listed) == len(self):
            y = tensor_of(listed, self.who)
            y = y if y.is_floating_point() else y.long()
            if equal((self._at_seed(0, tried)[-1],), (y[tried],)):
                return y, None
        with seeded_randomness(0):
            _, targets, weights = zip(*map(self._parts, range(len(self))), strict=True)
        y, _ = stack(targets, self.who)
        given = stack(weights, f"{self.who}, weights")[0] if self.weighted else None
        return y if y.is_floating_point() else y.long(), given


@dataclass(frozen=True)
class Mapped:
    """Inputs in a mapped file, of which only samples that are drawn are read."""

    x: np.memmap[Any, Any]
    y: torch.Tensor
    who: str

    def batch(self, index: Index) -> tuple[Inputs, torch.Tensor]:
        return finite(tensor_of(self.x[index], self.who), self.y[index], index, self.who)


def finite(
    x: Inputs, y: torch.Tensor, index: Sequence[int] | Index, who: str
) -> tuple[Inputs, torch.Tensor]:
    """The samples as given, refused if a number is not finite."""
    for name, values in (*tensors_of(x).items(), ("target", y)):
        if values.is_floating_point() and not torch.isfinite(values).all():
            bad = ~torch.isfinite(values.reshape(len(values), -1)).all(dim=1)
            raise ConfigError(
                f"{who}, sample {int(index[int(bad.nonzero()[0, 0])])} has a non-finite {name} "
                "(NaN or infinity); clean it or drop it"
            )
    return x, y


def equal(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    """Whether these are the same numbers; NaN equals NaN."""
    return all(
        a.dtype == b.dtype and a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
        for a, b in zip(one, other, strict=True)
    )


def listed_labels(data: Any) -> Any:
    """The targets that a data set knows without reading its items, or nothing."""
    if isinstance(data, Subset):
        whole = listed_labels(data.dataset)
        return None if whole is None else np.asarray(whole)[np.asarray(data.indices)]
    if isinstance(data, ConcatDataset):
        parts = [listed_labels(part) for part in data.datasets]
        return None if any(part is None for part in parts) else np.concatenate(parts)
    listed = getattr(data, "targets", getattr(data, "labels", None))
    return listed if isinstance(listed, torch.Tensor | np.ndarray | list | tuple) else None


def padded(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Targets one below the other, shorter ones filled."""
    shapes = {tuple(part.shape[1:]) for part in parts}
    if len({len(shape) for shape in shapes}) > 1 or len(shapes) == 1:
        return torch.cat(list(parts))
    longest = [max(sides) for sides in zip(*shapes, strict=True)]
    whole = parts[0].new_full((sum(map(len, parts)), *longest), FILL)
    start = 0
    for part in parts:
        whole[(slice(start, start + len(part)), *(slice(n) for n in part.shape[1:]))] = part
        start += len(part)
    return whole


@dataclass(frozen=True)
class LazySamples(Samples):
    """Samples of several data sets in sequence; `x` are their sources, `y` all targets."""

    x: tuple[Samples | Items | Mapped, ...]
    starts: Index = field(default_factory=lambda: np.zeros(1, np.int64))  # of each, and the end
    varying: bool = True  # whether some differ at every reading
    targets: Targets = identity
    orders: tuple[Callable[[int], Index] | None, ...] = ()  # of sources that a sampler draws from

    lazy: ClassVar[bool] = True

    @property
    def random(self) -> bool:
        return self.varying

    def batch(self, index: Index | slice, seed: int = 0) -> tuple[Inputs, torch.Tensor]:
        if isinstance(index, slice):
            index = np.arange(*index.indices(len(self)), dtype=np.int64)
        if self.weights is not None:
            x, y = replace(self, weights=None).batch(index, seed)
            return x, beside(self.weights[index], y)
        source = np.searchsorted(self.starts, index, side="right") - 1
        with seeded_randomness(seed):
            if len(set(source.tolist())) == 1:
                x, y = self._read(int(source[0]), index)
            else:
                pairs = [self._read(int(s), index[i : i + 1]) for i, s in enumerate(source)]
                x = joined([x for x, _ in pairs])
                y = torch.cat([y for _, y in pairs])
        return self.prepare(x), self.targets(y)

    def _read(self, source: int, index: Index) -> tuple[Inputs, torch.Tensor]:
        return self.x[source].batch(index - self.starts[source])

    def order(self, part: Index, rng: Generator) -> Index:
        source = int(np.searchsorted(self.starts, part[0], side="right") - 1)
        order = self.orders[source] if self.orders else None
        if order is None:
            return rng.permutation(part)
        start: int = self.starts[source]
        return order(int(rng.integers(2**31))) + start

    def subset(self, index: Index) -> Samples:
        raise ConfigError(
            "samples that are read when drawn (random ones, or more than memory holds) cannot "
            "be split further; give a test set, partition all of them, and omit data.validation"
        )

    def with_targets(self, targets: Targets) -> Samples:
        return replace(self, y=targets(self.y), targets=targets)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.batch(slice(0, 1))[0].shape[1:])


def joined(parts: Sequence[Inputs]) -> Inputs:
    """These inputs, concatenated; a single part is not copied."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, torch.Tensor):
        return torch.cat(list(parts))
    if isinstance(first, tuple):
        return tuple(torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return {name: torch.cat([part[name] for part in parts]) for name in first}


def size_of(x: Inputs) -> int:
    """The bytes of these inputs."""
    return sum(t.numel() * t.element_size() for t in tensors_of(x).values())
