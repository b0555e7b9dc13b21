"""From a compressor's name, as a user writes it, to the compressor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from tunefree.errors import ConfigError, unknown
from tunefree.wire.compressed import MOST_LEVELS
from tunefree.wire.compressors import (
    AnyOf,
    Compressor,
    Identity,
    PerTensor,
    Qsgd,
    Rand,
    Rule,
    Sign,
    Top,
)

KEY = "algorithm.compressor"


def fraction(spec: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise ConfigError(
            f"{KEY} = {spec!r} is out of range; give the share of elements to keep, above 0 and at "
            "most 1, as in 'top:0.05'"
        )
    return value


def levels(spec: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MOST_LEVELS):
        raise ConfigError(
            f"{KEY} = {spec!r} is out of range; give a whole number of levels from 1 to "
            f"{MOST_LEVELS}, as in 'qsgd:4'"
        )
    return int(text)


def nothing(spec: str, text: str) -> None:
    if text:
        name = spec.split(":")[0]
        raise ConfigError(f"{KEY} = {spec!r} has a number too many; write '{name}'")


RULES: Mapping[str, tuple[Callable[..., Rule], Callable[[str, str], Any]]] = {
    "identity": (Identity, nothing),
    "top": (Top, fraction),
    "rand": (Rand, fraction),
    "rand-unbiased": (partial(Rand, unbiased=True), fraction),
    "sign": (Sign, nothing),
    "qsgd": (Qsgd, levels),
    "qsgd-contractive": (partial(Qsgd, unbiased=False), levels),
}


def from_spec(spec: object, sizes: Sequence[int] | None = None) -> Compressor:
    """The compressor of that name for tensors of these sizes; without sizes, for the vector as one.

    >>> from_spec("top:0.05", sizes=[250, 10])
    PerTensor(rule=Top(fraction=0.05), sizes=(250, 10))
    >>> from_spec("top:0.05@whole", sizes=[250, 10])
    PerTensor(rule=Top(fraction=0.05), sizes=None)
    """
    if not isinstance(spec, str):
        raise ConfigError(f"{KEY} = {spec!r} is not a compressor; write one as in 'top:0.05'")
    if spec.startswith("any:"):
        return AnyOf(tuple(one(choice, sizes) for choice in spec.removeprefix("any:").split("|")))
    return one(spec, sizes)


def one(spec: str, sizes: Sequence[int] | None) -> PerTensor:
    """A single compressor."""
    rule, at, layout = spec.partition("@")
    name, _, text = rule.partition(":")
    if name not in RULES:
        raise unknown(KEY, name, [*RULES, "any"])
    if at and layout != "whole":
        raise unknown(f"{KEY} layout", layout, ["whole"])
    make, number = RULES[name]
    value = number(spec, text)
    return PerTensor(make() if value is None else make(value)).over(None if at else sizes)


def demand(C: Compressor, kind: Literal["contractive", "unbiased"], title: str) -> None:
    """Refuse a compressor for which the method is not made."""
    if not getattr(C, kind):
        good = {
            "contractive": "'top:0.05', 'rand:0.05', 'sign' or 'qsgd-contractive:4'",
            "unbiased": "'rand-unbiased:0.05' or 'qsgd:4'",
        }
        raise ConfigError(
            f"{KEY} = {str(C)!r} is not {kind}, as {title} needs it to be; choose {good[kind]}"
        )
