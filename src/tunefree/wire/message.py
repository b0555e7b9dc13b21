"""The size of a message: bits are counted from the message, never by a formula elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from tunefree.core import Message, Numbers, Vec, norm
from tunefree.wire.compressed import Compressed

SCALAR_BITS = 32
ROUNDING = 1e-3  # by which a norm may exceed its bound


def bits(message: Message) -> int:
    """The bits of every field of a message: 8 per byte of a vector, 32 per scalar.

    >>> from tunefree.core import OpeningDown
    >>> bits(OpeningDown(theta=torch.zeros(10)))
    320
    """
    return sum(field_bits(value) for value in message)


def value_bits(message: Message) -> int:
    """The bits of a message as the papers count: without the positions of sparse values."""
    return sum(
        value.value_bits if isinstance(value, Compressed) else field_bits(value)
        for value in message
    )


def field_bits(value: Vec | Compressed | Numbers | float) -> int:
    if isinstance(value, tuple):
        return len(value) * SCALAR_BITS
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size() * 8
    return value.bits if isinstance(value, Compressed) else SCALAR_BITS


def is_vector(value: object) -> bool:
    """Whether a field of a message is a vector, compressed or not."""
    return isinstance(value, torch.Tensor | Compressed)


def dense(value: Vec | Compressed) -> Vec:
    """A vector as it is without compression."""
    return value.dense() if isinstance(value, Compressed) else value


def fault(message: Any, kind: type[Any], like: Vec, bounds: Mapping[str, float] = {}) -> str:
    """Why an upload must not be used; empty if it may.

    It should be of the declared kind, its vectors as long as `like`, all numbers finite, and the
    norms of its fields within the bounds that the method declares.

    >>> from tunefree.core import OpeningUp
    >>> fault(OpeningUp(torch.tensor([1.0, 2.0])), OpeningUp, torch.zeros(3))
    '`grad` has length 2, not d = 3'
    """
    if type(message) is not kind:
        return f"a message {type(message).__name__!r} came instead of {kind.__name__!r}"
    for name, value in zip(message._fields, message, strict=True):
        if is_vector(value) and shape(value) != like.shape:
            return f"`{name}` has length {math.prod(shape(value))}, not d = {like.numel()}"
        if not is_finite(value):
            return f"`{name}` is not finite"
        if name in bounds:
            length = float(norm(dense(value)))
            if length > bounds[name] * (1 + ROUNDING):
                return f"`{name}` has norm {length:.4g}; the method gives at most {bounds[name]:g}"
    return ""


def shape(value: Vec | Compressed) -> tuple[int, ...]:
    """The shape of the vector it stands for, without building it."""
    if isinstance(value, Compressed):
        return (sum(part.d for part in value.parts),)
    return tuple(value.shape)


def is_finite(value: Vec | Compressed | Numbers | float) -> bool:
    if isinstance(value, tuple):
        return all(map(math.isfinite, value))
    if isinstance(value, torch.Tensor):
        total = float(value.sum())  # 40 times faster than checking each; may overflow
        return math.isfinite(total) or bool(torch.isfinite(value).all())
    return value.is_finite() if isinstance(value, Compressed) else math.isfinite(value)
