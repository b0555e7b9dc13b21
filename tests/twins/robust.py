"""Robust rules on lists of plain arrays, each as its page has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations

import numpy as np

from tunefree.testing import Array

Rule = Callable[[list[Array]], Array]


def median(x: list[Array]) -> Array:
    return np.array([np.median([x_i[j] for x_i in x]) for j in range(len(x[0]))])


def trimmed_mean(x: list[Array]) -> Array:
    n, out = len(x), []
    f = max(1, n // 3)
    for j in range(len(x[0])):
        kept = sorted(float(x_i[j]) for x_i in x)[f : n - f]
        out.append(sum(kept) / len(kept))
    return np.array(out)


def geometric_median(x: list[Array]) -> Array:
    z = median(x)
    for _ in range(8):
        w = [1 / max(float(np.linalg.norm(x_i - z)), 1e-12) for x_i in x]
        z = np.array(sum(w_i * x_i for w_i, x_i in zip(w, x, strict=True)) / sum(w))
    return z


def krum(x: list[Array]) -> Array:
    n = len(x)
    f = max(1, n // 3)
    near = max(1, n - f - 2)
    gap = {(i, j): float(np.sum((x[i] - x[j]) ** 2)) for i, j in combinations(range(n), 2)}
    score = []
    for i in range(n):
        gaps = sorted(gap[min(i, j), max(i, j)] for j in range(n) if j != i)
        score.append((sum(gaps[:near]), i))
    chosen = sorted(i for _, i in sorted(score)[: n - f])
    return np.array(sum(x[i] for i in chosen) / len(chosen))


def centred_clipping(x: list[Array]) -> Array:
    v = median(x)
    for _ in range(3):
        apart = [x_i - v for x_i in x]
        far = sorted(float(np.linalg.norm(a)) for a in apart)
        radius = far[(len(far) - 1) // 2]
        cut = [a * min(1.0, radius / max(float(np.linalg.norm(a)), 1e-12)) for a in apart]
        v = v + np.mean(cut, axis=0)
    return v


RULES: Mapping[str, Rule] = {
    "median": median,
    "trimmed-mean": trimmed_mean,
    "geometric-median": geometric_median,
    "krum": krum,
    "centred-clipping": centred_clipping,
}
