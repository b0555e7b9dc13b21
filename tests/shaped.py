"""Quadratic problems whose vector is that of tensors with shapes, one of which starts at zero."""

from __future__ import annotations

from math import prod

import numpy as np

from tunefree.core import System
from tunefree.testing import Array, Problem, quadratic

Shapes = tuple[tuple[int, ...], ...]

WIDE = ((2, 3), (2,), (), (2, 2))  # a matrix, a vector, one number and a matrix that starts at zero
KERNEL = ((3, 2, 1, 2), (3,), (3, 2), (1, 4), (1,))  # the vector starts at zero
ALIKE = ((2, 3), (3, 2), (3, 1))  # the first two go through Newton-Schulz together
ZERO = {WIDE: slice(9, 13), KERNEL: slice(12, 15), ALIKE: slice(0, 0)}


class StartingAtZero(Problem):
    """The problem with one tensor that starts at zero."""

    @property
    def theta0(self) -> Array:
        theta0 = np.array(super().theta0)
        for shapes, zero in ZERO.items():
            if sum(map(prod, shapes)) == self.d:
                theta0[zero] = 0
        return theta0


def problem_of(sys: System, shapes: Shapes) -> Problem:
    return StartingAtZero(*quadratic(N=sys.N, d=sum(map(prod, shapes)), seed=sys.T))
