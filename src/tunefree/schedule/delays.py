"""How long clients take: laws of virtual seconds, or a measured trace."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tunefree.core import stream
from tunefree.errors import ConfigError

CLASSES = (3.0, 2.0, 1.0)  # Dirichlet weights of fast, medium and slow clients


class Delays(Protocol):
    """How many seconds a job takes: always the same for the same seed, client and job."""

    @property
    def longest(self) -> float:
        """The most seconds that a job is expected to take."""

    def duration(self, seed: int, client: int, number: int) -> float:
        """The seconds of a client's job, its jobs being numbered from 0."""


@dataclass(frozen=True)
class SpeedClasses:
    """FADAS: a client is fast, medium or slow throughout; each job is uniform within its class."""

    fast: tuple[float, float] = (1, 2)
    medium: tuple[float, float] = (3, 5)
    slow: tuple[float, float] = (5, 8)

    @property
    def longest(self) -> float:
        return self.slow[1]

    def duration(self, seed: int, client: int, number: int) -> float:
        drawn = stream(seed, "speed", client).dirichlet(CLASSES)
        low, high = (self.fast, self.medium, self.slow)[int(drawn.argmax())]
        return float(stream(seed, "delay", client, number).uniform(low, high))


@dataclass(frozen=True)
class HalfNormal:
    """FedBuff: |N(0, 1)| for every job of every client."""

    longest: float = 6.0  # exceeded once in 500 million jobs

    def duration(self, seed: int, client: int, number: int) -> float:
        return abs(float(stream(seed, "delay", client, number).normal()))


@dataclass(frozen=True)
class Trace:
    """Measured seconds: a client's jobs cycle through its own."""

    seconds: tuple[tuple[float, ...], ...]  # of each client

    @property
    def longest(self) -> float:
        return max(map(max, self.seconds))

    def duration(self, seed: int, client: int, number: int) -> float:
        own = self.seconds[client]
        return own[number % len(own)]


LAWS: dict[str, Delays] = {
    "mild": SpeedClasses(),
    "large": SpeedClasses(slow=(50, 80)),
    "half-normal": HalfNormal(),
}


def from_spec(text: str, N: int) -> Delays:
    """A law by name, or the trace in a file of lines `client,seconds`.

    >>> from_spec("half-normal", N=10).longest
    6.0
    """
    if text in LAWS:
        return LAWS[text]
    try:
        lines = Path(text).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "is neither a law of delays nor a readable file",
            f"choose from {', '.join(LAWS)}, or give a file of lines `client,seconds`",
            setting="delays",
            value=text,
        ) from error
    return Trace(read_trace(text, lines, N))


def read_trace(name: str, lines: Sequence[str], N: int) -> tuple[tuple[float, ...], ...]:
    """Each client's seconds in the order of the lines; a heading `client,seconds` is allowed."""
    seconds: list[list[float]] = [[] for _ in range(N)]
    for number, row in enumerate(csv.reader(lines), start=1):
        cells = [cell.strip() for cell in row]
        if not any(cells) or (number == 1 and cells == ["client", "seconds"]):
            continue
        try:
            client, value = int(cells[0]), float(cells[1])
            good = len(cells) == 2 and 0 <= client < N and 0 <= value < math.inf
        except (ValueError, IndexError):
            good = False
        if not good:
            raise ConfigError(
                f"has {','.join(row)!r} in line {number}",
                f"a line is `client,seconds`, clients from 0 to {N - 1} and seconds not negative",
                setting="delays",
                value=name,
            )
        seconds[client].append(value)
    for client, own in enumerate(seconds):
        if not own:
            raise ConfigError(
                f"has no line for client {client}",
                f"give every client from 0 to {N - 1} at least one",
                setting="delays",
                value=name,
            )
    return tuple(map(tuple, seconds))
