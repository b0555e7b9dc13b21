"""Shared memory between processes: what is packed is unpacked, and nothing is stored twice."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from tunefree.fleet.arena import ALIGNMENT, Arena


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena.create()
    yield arena
    os.close(arena.fd)


def test_what_is_packed_is_unpacked(arena: Arena) -> None:
    value = {"v": torch.arange(5.0), "n": (np.arange(3), "text"), "one": 1}
    found = arena.unpack(arena.pack(value), copy=True)
    assert torch.equal(found["v"], value["v"])  # type: ignore[arg-type]
    assert found["n"][0].tolist() == [0, 1, 2]
    assert (found["n"][1], found["one"]) == ("text", 1)


def test_a_vector_that_occurs_twice_is_copied_once(arena: Arena) -> None:
    v = torch.ones(1000)
    parcel = arena.pack([(0 * v, v), (2 * v, v)])
    assert parcel.size == 3 * -(-v.nbytes // ALIGNMENT) * ALIGNMENT
    (a, b), (c, d) = arena.unpack(parcel, copy=True)
    assert [x.unique().tolist() for x in (a, b, c, d)] == [[0], [1], [2], [1]]


def test_the_memory_grows_with_what_is_packed(arena: Arena) -> None:
    for size in (10, 100_000, 10):
        v = torch.randn(size)
        assert torch.equal(arena.unpack(arena.pack(v), copy=True), v)
