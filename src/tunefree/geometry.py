"""The tensors inside a model's flat vector: their units, their directions, how far they have moved.

`shapes` are the tensors' shapes in their order in the vector; None treats it as one tensor.
A tensor with two or more axes is the matrix (first axis, all others).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from math import prod
from statistics import median

import torch

from tunefree.core import Numbers, Shapes, Vec, norm

__all__ = [
    "add_directions",
    "cut",
    "descend",
    "directions",
    "distance",
    "gain",
    "lengths",
    "polar_directions",
    "polar_factors",
    "rows",
    "split",
    "units",
]

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # X <- a X + (b A + c A A) X, A = X X^T
TIMES = 5


def split(v: Vec, shapes: Shapes) -> Sequence[Vec]:
    """Each tensor as a flat view."""
    return [v] if shapes is None else torch.split(v, [prod(shape) for shape in shapes])


def units(theta0: Vec, shapes: Shapes) -> Numbers:
    """The norm of each tensor at the start, its own unit of length.

    One that starts at zero gets the others' median norm for its size; if all do, a row of a
    matrix has length 1.

    >>> units(torch.tensor([3.0, 4.0, 0.0, 0.0]), ((2,), (2,)))
    (5.0, 5.0)
    """
    lengths = [float(norm(u)) for u in split(theta0, shapes)]
    all_shapes = shapes or (tuple(theta0.shape),)
    sizes = [prod(shape) for shape in all_shapes]
    spreads = [r / n**0.5 for r, n in zip(lengths, sizes, strict=True) if r > 0]
    if not spreads:
        return tuple(float(shape[0] if shape else 1) ** 0.5 or 1.0 for shape in all_shapes)
    usual = median(spreads)  # an empty tensor has no length; any unit will do
    return tuple(r or n**0.5 * usual or 1.0 for r, n in zip(lengths, sizes, strict=True))


def tensor_weights(shapes: Sequence[tuple[int, ...]]) -> Numbers:
    """w_l with w_l^2 = sqrt(n_l) / Σ_j sqrt(n_j): of unit vectors, those under which noise on all
    tensors does the least harm; 1 for an empty tensor.

    >>> tensor_weights([(16,), (9, 9)])
    (0.5547001962252291, 0.8320502943378437)
    """
    roots = [math.sqrt(prod(shape)) for shape in shapes]
    return tuple(math.sqrt(root / sum(roots)) or 1.0 for root in roots)


def directions(v: Vec, shapes: Shapes) -> Vec:
    """Each tensor divided by its norm; zero stays zero, with no epsilon added to a norm.

    >>> directions(torch.tensor([3.0, 4.0, 0.0, -2.0]), ((2,), (1,), (1,)))
    tensor([ 0.6000,  0.8000,  0.0000, -1.0000])
    """
    return add_directions(torch.zeros_like(v), v, shapes)


def add_directions(total: Vec, v: Vec, shapes: Shapes) -> Vec:
    """Add the directions of v to a sum, in place: one pass over the numbers beside the norms."""
    for u, w in zip(split(total, shapes), split(v, shapes), strict=True):
        length = norm(w)
        u.addcdiv_(w, length + (length == 0))
    return total


def polar_directions(v: Vec, shapes: Shapes) -> Vec:
    """Each tensor divided by its norm, with a matrix's polar factor in its place, which moves
    equally far in all singular directions.

    >>> polar_directions(torch.tensor([5.0, 0.0, 0.0, 0.1]), ((2, 2),)).abs() > 0.5
    tensor([ True, False, False,  True])
    """
    result = directions(v, shapes)
    for matrix, factor in factors(result, shapes):
        length = norm(factor)
        torch.div(factor, length + (length == 0), out=matrix)
    return result


def polar_factors(v: Vec, shapes: Shapes) -> Vec:
    """Each matrix's polar factor, whose singular values are near 1; other tensors divided by their
    norms, and so is a matrix of one row or column.

    >>> polar_factors(torch.tensor([3.0, 4.0, -2.0]), ((2, 1), (1,)))
    tensor([ 0.6000,  0.8000, -1.0000])
    """
    result = directions(v, shapes)
    for matrix, factor in factors(result, shapes):
        matrix.copy_(factor)
    return result


def factors(v: Vec, shapes: Shapes) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Each matrix in a vector of directions, on its short side, and its polar factor."""
    by_shape: dict[tuple[int, int], list[Vec]] = {}
    for shape, u in zip(shapes or (), split(v, shapes), strict=shapes is not None):
        rows = shape[0] if shape else 1
        if min(rows, u.numel() // max(rows, 1)) > 1:
            matrix = u.view(rows, -1)
            matrix = matrix if rows <= matrix.shape[1] else matrix.T  # on its short side
            by_shape.setdefault((matrix.shape[0], matrix.shape[1]), []).append(matrix)
    for matrices in by_shape.values():
        X = torch.stack(matrices) if len(matrices) > 1 else matrices[0].unsqueeze(0)
        yield from zip(matrices, newton_schulz(X), strict=True)


def newton_schulz(X: torch.Tensor) -> torch.Tensor:
    """The approximate polar factor of each matrix of norm 1: singular values end up near 1."""
    a, b, c = NEWTON_SCHULZ
    for _ in range(TIMES):
        A = X @ X.mT
        X = torch.baddbmm(X, torch.baddbmm(A, A, A, beta=b, alpha=c), X, beta=a)
    return X


def descend(x: Vec, v: Vec, steps: Numbers, shapes: Shapes) -> Vec:
    """x - steps v: each tensor of v has its own step."""
    result = torch.empty_like(x)
    parts = (split(x, shapes), split(v, shapes), steps, split(result, shapes))
    for u, w, step, moved in zip(*parts, strict=True):
        torch.add(u, w, alpha=-step, out=moved)
    return result


def scaled(v: Vec, factors: Numbers, shapes: Shapes) -> Vec:
    """Each tensor times its factor.

    >>> scaled(torch.tensor([3.0, 4.0, 1.0]), (2.0, 5.0), ((2,), (1,)))
    tensor([6., 8., 5.])
    """
    result = v.clone()
    for u, factor in zip(split(result, shapes), factors, strict=True):
        u.mul_(factor)
    return result


def gain(g: Vec, units: Numbers, shapes: Shapes) -> float:
    """What moving every tensor by its unit against the gradient g would gain, to first order.

    >>> gain(torch.tensor([3.0, 4.0, 2.0]), (1.0, 10.0), ((2,), (1,)))
    25.0
    """
    return sum(r * float(norm(u)) for u, r in zip(split(g, shapes), units, strict=True))


def distance(x: Vec, y: Vec, units: Numbers, shapes: Shapes) -> float:
    """The root of the mean, over tensors, of (||x_l - y_l|| / r_l)^2."""
    gaps = [float(norm(u)) / r for u, r in zip(split(x - y, shapes), units, strict=True)]
    return math.sqrt(sum(gap * gap for gap in gaps) / len(gaps))


def rows(vectors: Sequence[Sequence[Vec]]) -> Vec:
    """A table whose rows are these vectors, those of each row one after the other.

    >>> rows([[torch.ones(1), torch.zeros(2)], [torch.zeros(1), torch.ones(2)]])
    tensor([[1., 0., 0.],
            [0., 1., 1.]])
    """
    return torch.stack([torch.cat(list(row)) for row in vectors])


def cut(v: Vec, sizes: Sequence[int]) -> Sequence[Vec]:
    """A vector cut into vectors of these lengths.

    >>> cut(torch.tensor([1.0, 2.0, 3.0]), [1, 2])
    (tensor([1.]), tensor([2., 3.]))
    """
    parts: Sequence[Vec] = torch.split(v, list(sizes))
    return parts


def lengths(table: Vec) -> Vec:
    """The norm of each row.

    >>> lengths(torch.tensor([[3.0, 4.0], [0.0, 2.0]]))
    tensor([5., 2.])
    """
    found: Vec = torch.linalg.vector_norm(table, dim=1)
    return found
