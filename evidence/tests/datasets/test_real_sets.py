"""The real data sets, where they are available: official sizes, class counts and quick loading."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from tunefree.data import Source, load
from tunefree_evidence.datasets import offered

COUNTS = {  # training samples of each class
    "mnist": [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
    "fashion-mnist": [6000] * 10,
    "emnist": [2400] * 47,
    "emnist-part-balanced": [600] * 47,
    "cifar10": [5000] * 10,
    "imdb": [12_500] * 2,
}
REAL = {
    each.name: each for each in vars(offered).values() if isinstance(each, Source) and each.here
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_real_set(name: str) -> None:
    source = REAL[name]
    if source.here is None or not source.here(None):
        pytest.skip(f"{name} is neither in TUNEFREE_DATA nor in the cache nor a system package")
    load(name)
    start = time.perf_counter()
    data = load(name)
    assert time.perf_counter() - start < 5
    assert (len(data.train), len(data.test), data.classes) == source[2:5]
    assert len(data.names) == source.classes
    counts = torch.bincount(data.train.y).tolist()
    assert counts == COUNTS.get(name, counts)
    head = data.train.y[:200]
    assert head.min() < head.max(), "sorted by label"
    x, y = data.train.batch(np.arange(64))
    assert y.dtype == torch.int64
    if name == "imdb":
        assert len(data.words) == 10_000
        assert data.train.x.dtype == torch.int16
        assert x.shape == (64, 200)
        assert int(data.train.x.max()) == 9_999
    else:
        assert data.train.x.dtype == torch.uint8
        some, _ = data.train.batch(np.arange(0, len(data.train), 40))
        assert some.mean().abs() < 0.05
        assert (some.std() - 1).abs() < 0.05
