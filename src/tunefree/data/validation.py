"""Samples held out from training, for choosing settings; the test set stays unseen."""

from __future__ import annotations

import numpy as np

from tunefree.core import stream
from tunefree.data.samples import Index, Partition, Samples
from tunefree.errors import ConfigError


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
    left, aside = [], []
    for client, part in enumerate(parts):
        mixed: Index = stream(seed, "validation", client).permutation(part)
        cut = min(int(np.ceil(share * len(part))), len(part) - 1)
        aside.append(mixed[:cut])
        left.append(np.sort(mixed[cut:]))
    index = np.sort(np.concatenate(aside))
    if not len(index):
        raise ConfigError(
            "holds out nothing, as every client has a single sample",
            "use fewer clients",
            setting="validation",
            value=share,
        )
    return Partition(left), Samples(train.x[index], train.y[index], train.prepare)
