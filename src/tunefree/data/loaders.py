"""A torch DataLoader as a client's data: its collate_fn makes batches, its sampler their order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    default_collate,
)

from tunefree.data.lazy import seeded_randomness
from tunefree.data.samples import Federation, Index
from tunefree.errors import ConfigError, failure_of


@dataclass(frozen=True)
class Order:
    """The order in which a sampler draws a client's samples."""

    who: str
    sampler: Any
    batch_size: int
    drop_last: bool
    places: Index  # in the data set, of the samples that it draws

    def __call__(self, seed: int) -> Index:
        """One pass, as places among the client's samples."""
        drawn = np.searchsorted(self.places, drawn_by(self.sampler, seed))
        whole = len(drawn) // self.batch_size * self.batch_size if self.drop_last else len(drawn)
        return drawn[:whole]

    def check(self, steps: int, epochs: int) -> None:
        """Refuse local work that would not be what the loader yields."""
        drawn = len(self(0))
        batches = -(-drawn // self.batch_size)
        if epochs and drawn != len(self.places):
            raise ConfigError(
                f"cannot be used for {self.who}, whose DataLoader draws {drawn} of "
                f"{len(self.places)} samples in a pass",
                "give {local_steps} instead",
                setting="local_epochs",
                value=epochs,
            )
        if not epochs and steps < batches and np.array_equal(self(0), self(1)):
            raise ConfigError(
                f"would train on the first batches of {self.who} only, as its DataLoader has "
                f"{batches} and does not shuffle",
                "make it with shuffle=True, or give {local_epochs} = 1 instead",
                setting="local_steps",
                value=steps,
            )


def drawn_by(sampler: Any, seed: int) -> Index:
    """The data set's samples in one pass of a sampler, with random numbers from this seed."""
    with seeded_randomness(seed):
        return np.fromiter((int(i) for i in sampler), dtype=np.int64)


def opened(loader: DataLoader[Any], who: str) -> tuple[Any, Callable[..., Any] | None, Index, Any]:
    """The data set, the collate_fn if it is not torch's own, the samples drawn, and their order.

    There is no order if it is a shuffle of all of them, which every client's samples are.
    """
    data, sampler, batches = loader.dataset, loader.sampler, loader.batch_sampler
    if isinstance(data, IterableDataset):
        raise ConfigError(
            f"{who} is a DataLoader of an IterableDataset, whose samples can only be read in "
            "sequence, and clients draw them in any order; give a data set with __getitem__ and "
            "__len__, such as list(data)"
        )
    if type(batches) is not BatchSampler or loader.batch_size is None:
        raise ConfigError(
            f"{who} is a DataLoader with "
            + ("batch_size=None" if batches is None else "a batch_sampler of its own")
            + "; give it batch_size and, if need be, a sampler of single samples"
        )
    collate = None if loader.collate_fn is default_collate else loader.collate_fn
    try:
        first, other, again = (drawn_by(sampler, seed) for seed in (0, 1, 0))
    except Exception as error:
        raise ConfigError(f"{who} has a sampler that failed with {failure_of(error)}") from error
    if not np.array_equal(first, again):
        raise ConfigError(
            f"{who} has a sampler with random numbers of its own, so no run could be repeated; "
            "make it without generator=, and they follow from the run's seed"
        )
    places = np.unique(first)
    if not np.array_equal(places, np.unique(other)):  # drawn with replacement
        places = np.arange(len(data), dtype=np.int64)  # type: ignore[arg-type]
    shuffles = type(sampler) in (RandomSampler, SubsetRandomSampler) and len(first) == len(places)
    shuffles = shuffles and not getattr(sampler, "replacement", False)
    drops = loader.drop_last and len(first) % loader.batch_size > 0
    if shuffles and not drops:
        return data, collate, places, None
    return data, collate, places, Order(who, sampler, loader.batch_size, drops, places)


def check_loaders(federation: Federation, batch_size: int, steps: int, epochs: int) -> None:
    """Refuse settings that are not those of the DataLoaders given."""
    if federation.batch_size not in (0, batch_size):
        raise ConfigError(
            f"is not that of the DataLoaders given, {federation.batch_size}",
            "give one of the two",
            setting="batch_size",
            value=batch_size,
        )
    for order in getattr(federation.train, "orders", ()):
        if order is not None:
            order.check(steps, epochs)
