"""How heterogeneous the clients of a partition are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tunefree.data.samples import Index, Partition


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
