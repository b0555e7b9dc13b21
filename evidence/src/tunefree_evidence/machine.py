"""What runs need of the machine: its processors, one thread to measure on, whole files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for torch, as in a run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def write_whole(path: Path, text: str) -> None:
    """Write a file completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
