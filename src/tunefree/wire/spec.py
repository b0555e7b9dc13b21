"""Compressors by name, as users write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from tunefree.errors import ConfigError, unknown, unknown_name
from tunefree.wire.compressed import GAUSSIAN, MOST_LEVELS
from tunefree.wire.compressors import (
    AnyOf,
    Compressor,
    Identity,
    PerTensor,
    Qsgd,
    Rand,
    Rotated,
    Rule,
    Sign,
    Top,
)


def fraction(spec: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise ConfigError(
            "needs the share of elements to keep, a number above 0 and at most 1",
            "write it like 'top:0.05'",
            setting="compressor",
            value=spec,
        )
    return value


def levels(spec: str, text: str) -> int:
    text = text.lstrip("0")
    short = len(text) <= len(str(MOST_LEVELS))
    if not (text.isascii() and text.isdigit() and short and int(text) <= MOST_LEVELS):
        raise ConfigError(
            f"needs a whole number of levels from 1 to {MOST_LEVELS}",
            "write it like 'qsgd:4'",
            setting="compressor",
            value=spec,
        )
    return int(text)


def few_bits(spec: str, text: str) -> int:
    if text not in map(str, GAUSSIAN):
        raise ConfigError(
            f"needs a whole number of bits per element from {min(GAUSSIAN)} to {max(GAUSSIAN)}",
            "write it like 'rotated:2'",
            setting="compressor",
            value=spec,
        )
    return int(text)


def no_number(spec: str, text: str) -> None:
    if text:
        name = spec.split(":")[0]
        raise ConfigError("takes no number", f"write '{name}'", setting="compressor", value=spec)


RULES: Mapping[str, tuple[Callable[..., Rule], Callable[[str, str], Any]]] = {
    "identity": (Identity, no_number),
    "top": (Top, fraction),
    "rand": (Rand, fraction),
    "rand-unbiased": (partial(Rand, unbiased=True), fraction),
    "sign": (Sign, no_number),
    "rotated": (Rotated, few_bits),
    "qsgd": (Qsgd, levels),
    "qsgd-contractive": (partial(Qsgd, unbiased=False), levels),
}


def from_spec(spec: object, sizes: Sequence[int] | None = None) -> Compressor:
    """The compressor of that name for tensors of these sizes; without sizes, for the vector as one.

    >>> from_spec("top:0.05", sizes=[250, 10])
    PerTensor(rule=Top(fraction=0.05), sizes=(250, 10), whole=False)
    >>> from_spec("top:0.05@whole", sizes=[250, 10])
    PerTensor(rule=Top(fraction=0.05), sizes=None, whole=True)
    """
    if not isinstance(spec, str):
        raise ConfigError(
            "is not a compressor", "write it like 'top:0.05'", setting="compressor", value=spec
        )
    if spec.startswith("any:"):
        choices = spec.removeprefix("any:").split("|")
        if wrong := [choice for choice in choices if not choice or choice.startswith("any:")]:
            raise ConfigError(
                f"contains {wrong[0]!r}",
                "separate single compressors by bars, as in 'any:top:0.02|sign'",
                setting="compressor",
                value=spec,
            )
        return AnyOf(tuple(one(choice) for choice in choices)).over(sizes)
    return one(spec).over(sizes)


def one(spec: str) -> PerTensor:
    """A single compressor."""
    rule, at, layout = spec.partition("@")
    name, _, text = rule.partition(":")
    if name not in RULES:
        raise unknown("compressor", name, [*RULES, "any"])
    if at and layout != "whole":
        raise unknown_name("layout of a compressor", layout, ["whole"])
    make, number = RULES[name]
    value = number(spec, text)
    return PerTensor(make() if value is None else make(value), whole=bool(at))


def demand(C: Compressor, kind: Literal["contractive", "unbiased"], title: str) -> None:
    """Refuse a compressor of the wrong kind for the method, or its text."""
    if isinstance(C, str):
        raise ConfigError(
            f"is the text of a compressor in {title}",
            f"write tunefree.methods.compressor({C!r})",
            setting="compressor",
            value=C,
        )
    if not getattr(C, kind):
        good = {
            "contractive": "'top:0.05', 'rand:0.05', 'sign', 'rotated:2' or 'qsgd-contractive:4'",
            "unbiased": "'rand-unbiased:0.05' or 'qsgd:4'",
        }
        raise ConfigError(
            f"is not {kind}, which {title} requires",
            f"choose {good[kind]}",
            setting="compressor",
            value=str(C),
        )
