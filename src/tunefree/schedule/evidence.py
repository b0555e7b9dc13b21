"""What a run knows about each client: how long its uploads are, and whether they agree with others.

Both are about its c_i, the sum of what it has sent, if the only vector of an upload changes that,
and otherwise about the upload. Sums are kept as sketches: a vector's pieces of WIDTH numbers, added
up with random signs, which keeps lengths and angles to a few per cent. Agreement is the cosine with
the sum of the others' directions, length a multiple of the median; three uploads are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tunefree.core import Algorithm, Vec, about, stream
from tunefree.fleet.job import Done, Job
from tunefree.wire import Compressed, dense, is_vector

WIDTH, FEWEST = 256, 3
MOST = 1000  # clients, beyond which nothing is noted
ROWS, SUMS = "evidence", "sums"  # by client; the first as record/evidence.py reads it


def noted(
    vectors: dict[str, NDArray[Any]], algo: Algorithm, used: Sequence[tuple[Job, Done]]
) -> dict[str, NDArray[Any]]:
    """These arrays with what the uploads to one exchange show."""
    if not used or algo.sys.N > MOST:
        return vectors
    fields = [name for name, value in used[0][1].up._asdict().items() if is_vector(value)]
    if not fields:
        return vectors
    clients = [job.client for job, _ in used]
    found = np.stack([sketch(getattr(done.up, fields[0])) for _, done in used])
    new: dict[str, NDArray[Any]] = {}
    if about(algo).means and len(fields) == 1:
        sums = grown(vectors.get(SUMS), max(clients), WIDTH, np.float32)
        sums[clients] += found
        new[SUMS], found = sums, sums[clients].astype(np.float64)
    long = np.linalg.norm(found, axis=1)
    apart = long > 0
    if np.count_nonzero(apart) >= FEWEST:
        directions, rows = found[apart] / long[apart, None], vectors.get(ROWS)
        others = directions.sum(axis=0) - directions
        size = np.maximum(np.linalg.norm(others, axis=1), 1e-300)
        agreement = (directions * others).sum(axis=1) / size
        times = np.log(long[apart] / np.median(long[apart]))
        new[ROWS] = rows = grown(rows, max(clients), 4, np.float64)
        seen = np.array(clients)[apart]
        rows[seen] += np.stack([np.ones_like(times), agreement, agreement < 0, times], axis=1)
    return {**vectors, **new}


def forgotten(vectors: dict[str, NDArray[Any]], client: int) -> dict[str, NDArray[Any]]:
    """These arrays after a client has lost what it had sent."""
    if SUMS not in vectors:
        return vectors
    sums = grown(vectors[SUMS], client, WIDTH, np.float32)
    sums[client] = 0
    return {**vectors, SUMS: sums}


def grown(table: NDArray[Any] | None, last: int, width: int, kind: Any) -> NDArray[Any]:
    """A copy of a table with rows up to this one."""
    table = np.zeros((0, width), kind) if table is None else table
    return np.pad(table, ((0, max(0, last + 1 - len(table))), (0, 0)))


def sketch(value: Vec | Compressed) -> NDArray[Any]:
    """The sum of a vector's pieces of WIDTH numbers, each piece with a random sign."""
    v = dense(value)
    rows = len(v) // WIDTH
    sign, whole = signs(rows + 1).to(v), rows * WIDTH
    total = sign[:rows] @ v[:whole].view(rows, WIDTH)
    total[: len(v) - whole] += sign[rows] * v[whole:]
    found: NDArray[Any] = total.double().cpu().numpy()
    return found


@lru_cache(maxsize=2)
def signs(count: int) -> Vec:
    return torch.from_numpy(stream(0, "signs").integers(0, 2, count, dtype=np.int8) * 2 - 1)
