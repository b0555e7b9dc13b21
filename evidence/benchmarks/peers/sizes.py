"""What every peer gets: random images in equal parts, and the loop that times its rounds."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

N, HELD, S, K, BATCH, ETA = 100, 600, 10, 12, 100, 0.01


def client_data() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Standardised images (N, HELD, 28, 28) and labels (N, HELD)."""
    rng = np.random.default_rng(0)
    x = rng.integers(256, size=(N, HELD, 28, 28), dtype=np.uint8)
    return (x.astype(np.float32) / 255 - 0.5) / 0.25, rng.integers(10, size=(N, HELD))


def take_turns(rounds: Iterator[None]) -> None:
    """For every number read, run that many rounds and print their seconds, after one to warm up."""
    next(rounds)  # compiles, starts processes, reads data
    say("ready")
    for line in sys.stdin:
        next(rounds)
        seconds = []
        for _ in range(int(line)):
            began = time.perf_counter()
            next(rounds)
            seconds.append(time.perf_counter() - began)
        say(json.dumps(seconds))


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
