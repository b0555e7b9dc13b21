"""How large uploads usually are, which one is too large, and which clients are quarantined.

Every vector of an upload is compared, whole and tensor by tensor, with what is usual: the largest
median norm so far, each over the last 50 uploads that were accepted in the same place. Too large is
what is above 30 times that: a norm that grows slowly is followed, a jump is not. The largest, not
the present one: where most clients have nothing left to learn, an honest upload of one that has can
be thousands of times the median. Three more rules:

    the first   before ten were accepted, the median is over them and the round's own; three are
                needed
    all at once if three quarters of at least four uploads jump, it is the method that jumps; if
                no upload can be used, it is too
    nothing     a norm of zero says nothing and is left out

A method whose honest uploads grow by leaps, or are a few numbers drawn anew, says so
(`about.steady`) and is not judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from tunefree.core import Algorithm, Shapes, Vec, Vectors, about, norm, unwrapped
from tunefree.fleet.job import Done, Job
from tunefree.wire import Compressed, is_vector
from tunefree.wire.message import shape as shape_of

Norms: TypeAlias = NDArray[np.float64]  # one column per tensor, then the whole; NaN for zero
Came: TypeAlias = Sequence[tuple[Job, Done]]

TIMES = 30  # what is usual
LAST, FIRST, FEWEST, MANY = 50, 10, 3, 4  # uploads, as explained above
IN_A_ROW = 3  # refused uploads, for whatever reason, after which a client is quarantined
STRIKES, OUT = "strikes", "quarantine"  # (client, refused in a row); (client, after, until)
LEFT = "left"  # clients that are left out for good


class Gauge:
    """What a run knows about the sizes of its uploads; `vectors` is all of it, to be stored."""

    def __init__(self, judges: bool = True) -> None:
        """It `judges` nothing where only sums of uploads are known."""
        self.judges = judges
        self.vectors: dict[str, NDArray[Any]] = {}  # arrays are replaced, never changed

    def restore(self, vectors: Vectors) -> None:
        self.vectors = dict(vectors)

    def out(self, t: int) -> set[int]:
        """The clients that are not asked in step t."""
        rows = self.vectors.get(OUT, np.empty((0, 3), np.int64)).tolist()
        now = {client for client, after, until in rows if after < t and (until < 0 or t <= until)}
        return now | left(self.vectors)

    def judge(
        self, algo: Algorithm, came: Came, wrong: Sequence[tuple[Job, str]] = ()
    ) -> dict[int, str]:
        """Why uploads to one exchange are refused, by client: too large, or `wrong` anyway.

        It remembers the sizes of the others.
        """
        if not (came and self.judges):  # if all are wrong, it is the method
            return {}
        why = {job.client: reason for job, reason in wrong}
        bounds, shapes = about(algo).bounds, unwrapped(algo).shapes
        measured: list[tuple[str, Norms]] = []
        for name, value in came[0][1].up._asdict().items() if about(algo).steady else ():
            if name in bounds or not is_vector(value):
                continue
            rows = [lengths(getattr(done.up, name), shapes) for _, done in came]
            where = f"{came[0][0].stage} {came[0][0].exchange} {name}"
            measured.append((where, norms := np.array(rows)))
            usual = self._usual(where, norms)
            for i in np.flatnonzero((norms > TIMES * usual).any(1)).tolist():
                ratio = float(np.nanmax(norms[i] / usual))
                reason = f"its `{name}` is {number(ratio)} times as large as is usual"
                why.setdefault(came[i][0].client, reason)
        good = [job.client not in why for job, _ in came]
        for where, norms in measured:
            self._remember(where, norms[good])
        self._count(why, [job.client for job, _ in came], came[0][0].t)
        return why

    def _usual(self, where: str, norms: Norms) -> Norms:
        """What is usual for an upload now."""
        before, most = self.vectors.get(where, norms[:0]), self._most(where, norms[0])
        pool = np.concatenate([before, norms])
        first = np.where(count(pool) >= FEWEST, np.fmax(most, ranked(pool, 2)), np.inf)
        later = np.fmax(most, np.where(count(norms) >= MANY, ranked(norms, 4), 0))
        found: Norms = np.where(count(before) < FIRST, first, later)
        return found

    def _remember(self, where: str, norms: Norms) -> None:
        rows = np.concatenate([self.vectors.get(where, norms[:0]), norms])[-LAST:]
        median = np.where(count(rows) >= FEWEST, ranked(rows, 2), 0)
        self.vectors |= {
            where: rows,
            f"{where}, most": np.maximum(median, self._most(where, median)),
        }

    def _most(self, where: str, like: Norms) -> Norms:
        """The largest medians so far."""
        return self.vectors.get(f"{where}, most", np.zeros_like(like))

    def _count(self, why: dict[int, str], clients: Iterable[int], t: int) -> None:
        """Count refusals in a row, and quarantine those with too many."""
        before = dict(self.vectors.get(STRIKES, np.empty((0, 2), np.int64)).tolist())
        strikes = before | {client: before.get(client, 0) + 1 for client in why}
        strikes = {c: n for c, n in strikes.items() if c in why or c not in clients}
        over = [client for client in why if strikes[client] >= IN_A_ROW]
        for client in over:
            del strikes[client]
            why[client] += f", {IN_A_ROW} times in a row: quarantined until readmitted"
        if strikes != before:
            self.vectors[STRIKES] = np.array(sorted(strikes.items()), np.int64).reshape(-1, 2)
        if over:
            rows = self.vectors.get(OUT, np.empty((0, 3), np.int64)).tolist()
            self.vectors[OUT] = np.array([*rows, *((client, t, -1) for client in over)])


def readmitted(vectors: Vectors, clients: Iterable[int], t: int) -> dict[str, NDArray[Any]]:
    """A gauge's arrays with these clients asked again after step t."""
    rows = vectors[OUT].copy() if OUT in vectors else np.empty((0, 3), np.int64)
    rows[np.isin(rows[:, 0], list(clients)) & (rows[:, 2] < 0), 2] = t
    return {**vectors, OUT: rows}


def left(vectors: Vectors) -> set[int]:
    """The clients that are left out."""
    return set(vectors[LEFT].tolist()) if LEFT in vectors else set()


def without(vectors: Vectors, clients: Iterable[int]) -> dict[str, NDArray[Any]]:
    """A gauge's arrays with these clients left out."""
    return {**vectors, LEFT: np.array(sorted({*left(vectors), *clients}), np.int64)}


def lengths(value: Vec | Compressed, shapes: Shapes) -> list[float]:
    """The norm of each tensor and of the whole; NaN for zero."""
    sizes = [math.prod(shape) for shape in shapes or [shape_of(value)]]
    if isinstance(value, Compressed):
        if [part.d for part in value.parts] != sizes:
            return lengths(value.dense(), shapes)
        each = [part.length for part in value.parts]
    else:
        tensors = torch.split(value, sizes)
        each = torch.stack(torch._foreach_norm(tensors)).tolist()
        if not all(map(math.isfinite, each)):  # their squares are too large
            each = [float(norm(tensor.double())) for tensor in tensors]
    return [length or math.nan for length in (*each, math.hypot(*each))]


def count(norms: Norms) -> NDArray[np.int64]:
    found: NDArray[np.int64] = np.count_nonzero(~np.isnan(norms), axis=0)
    return found


def ranked(norms: Norms, share: int) -> Norms:
    """Of each column the lower median (share 2) or the lower quartile (4); NaN if it is empty.

    >>> ranked(np.array([[1.0], [np.nan], [9.0], [2.0], [3.0]]), 2)
    array([2.])
    """
    if not len(norms):
        return np.full(norms.shape[1], np.nan)
    place = np.maximum(count(norms) - 1, 0) // share
    found: Norms = np.take_along_axis(np.sort(norms, axis=0), place[None], 0)[0]
    return found


def number(ratio: float) -> str:
    """
    >>> number(43.21), number(3e29)
    ('43', '10^29')
    """
    return f"{ratio:.0f}" if ratio < 1e5 else f"10^{math.floor(math.log10(ratio))}"
