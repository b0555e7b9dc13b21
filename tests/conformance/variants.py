"""Every registered algorithm with every choice that its options offer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from tunefree.algorithms import REGISTRY, build
from tunefree.core import System

SYS = System(N=6, S=3, K=2, T=8)


def variants() -> Iterator[Any]:
    for name, cls in REGISTRY.items():
        hints = {key: hint for key, hint in get_type_hints(cls).items() if key != "about"}
        literal = {
            key: get_args(hint) for key, hint in hints.items() if get_origin(hint) is Literal
        }
        for choice in product(*literal.values()):
            options = dict(zip(literal, choice, strict=True))
            yield pytest.param(build(name, SYS, options), id="-".join([name, *choice]))


every_algorithm = pytest.mark.parametrize("algo", list(variants()))
