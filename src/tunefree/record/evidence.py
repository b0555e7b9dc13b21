"""What a run file knows about each client, and who stands apart from the others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from numpy.typing import NDArray

ROWS = "evidence"  # by client: how many uploads, Σ agreement, how many against, Σ ln(length)

OFTEN = 10  # uploads, before which nobody is said to stand apart
MOSTLY, RARELY = 0.75, 0.25  # shares of uploads against the others: of an outlier, of the median
LONG, ALIKE, MANY = 4.0, 1.5, 2 / 3  # times; so many clients are within a factor of the median


class Evidence(NamedTuple):
    """One client in numbers.

    Length, agreement and against are None where fewer than three uploads could be compared.
    """

    client: int
    uploads: int  # that were used
    absent: int  # replies that were missing or refused
    tau: float  # mean age of its uploads in steps
    compared: int = 0
    length: float | None = None  # as a multiple of the others' median, geometric mean
    agreement: float | None = None  # mean cosine with the others
    against: float | None = None  # share of its uploads whose cosine is negative


def compared(gauge: Mapping[str, NDArray[Any]]) -> dict[int, Evidence]:
    """The clients whose uploads were compared with others."""
    rows = enumerate(gauge[ROWS].tolist() if ROWS in gauge else ())
    return {
        client: Evidence(client, 0, 0, 0.0, int(n), math.exp(times / n), total / n, against / n)
        for client, (n, total, against, times) in rows
        if n
    }


def outliers(clients: Iterable[Evidence]) -> dict[int, str]:
    """Who stands apart from others that are alike, and how.

    >>> some = [Evidence(i, 20, 0, 0.0, 20, 1.0, 0.5, 0.1) for i in range(4)]
    >>> outliers([*some, Evidence(4, 20, 0, 0.0, 20, 1.0, -0.5, 1.0)])
    {4: '100 % of its uploads point away from the others, whose usual is 10 %'}
    """
    seen = [each for each in clients if each.compared >= OFTEN]
    if len(seen) < 4:
        return {}
    usual = median(numbers(seen, "against"))
    lengths = numbers(seen, "length")
    alike = sum(1 / ALIKE <= length <= ALIKE for length in lengths) >= MANY * len(seen)
    why = {}
    for each, against, length in zip(seen, numbers(seen, "against"), lengths, strict=True):
        if against >= MOSTLY and usual <= RARELY:
            why[each.client] = (
                f"{against:.0%} of its uploads point away from the others, whose usual is "
                f"{usual:.0%}".replace("%", " %")
            )
        elif alike and length >= LONG:
            why[each.client] = f"what it sends is {length:.1f} times as long as is usual"
    return why


def numbers(clients: Sequence[Evidence], name: str) -> list[float]:
    return [getattr(each, name) for each in clients]
