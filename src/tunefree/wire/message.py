"""What a message weighs: bits are a property of the message, never a formula kept elsewhere."""

from __future__ import annotations

import math

import torch

from tunefree.core import Message, Reply, Vec
from tunefree.errors import WireError
from tunefree.wire.compressed import Compressed

SCALAR_BITS = 32


def bits(message: Message) -> int:
    """The bits of every field of a message: 8 per byte of a vector, 32 per scalar.

    >>> from tunefree.core import OpeningDown
    >>> bits(OpeningDown(theta=torch.zeros(10)))
    320
    """
    return sum(field_bits(value) for value in message)


def value_bits(message: Message) -> int:
    """The same as the papers count: the positions of sparse values are left out."""
    return sum(
        value.value_bits if isinstance(value, Compressed) else field_bits(value)
        for value in message
    )


def field_bits(value: Vec | Compressed | float) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size() * 8
    return value.bits if isinstance(value, Compressed) else SCALAR_BITS


def refuse_non_finite(replies: list[Reply], t: int) -> None:
    """Stop at the step where a NaN or infinity first crosses the wire, naming who sent it."""
    for reply in replies:
        for name, value in zip(reply.up._fields, reply.up, strict=True):
            if not is_finite(value):
                raise WireError(
                    f"client {reply.client} uploaded a non-finite `{name}` at t = {t}: "
                    "training has diverged"
                )


def is_finite(value: Vec | Compressed | float) -> bool:
    if isinstance(value, torch.Tensor):
        return bool(torch.isfinite(value).all())
    return value.is_finite() if isinstance(value, Compressed) else math.isfinite(value)
