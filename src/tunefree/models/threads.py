"""How many threads torch uses inside an operator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """One intra-op thread, so that sums come out the same on any fleet; own noise streams.

    Small networks are also faster so: on a busy machine, threads mostly wait for each other.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)
