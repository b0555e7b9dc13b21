"""Every registered algorithm with every choice that its options offer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from tunefree.algorithms import REGISTRY, build
from tunefree.core import System

SYS = System(N=6, S=3, K=2, T=8)
EVERYONE = SYS._replace(S=SYS.N, K=1)
SIZES = (3, 2)  # of the tensors that make up the problem's vector
MIXED = {
    "contractive": "any:top:0.5|rand:0.5|sign|qsgd-contractive:4|identity@whole",
    "unbiased": "any:rand-unbiased:0.5|qsgd:4|rand-unbiased:0.2@whole",
}
MORE: list[tuple[str, System, dict[str, object]]] = [
    ("fednova", SYS, {"rho": 0.5}),
    ("fednova", SYS, {"mu": 0.5, "effective": "steps"}),
    ("fafed", EVERYONE, {}),
]


def variants() -> Iterator[Any]:
    for name, cls in REGISTRY.items():
        hints = {key: hint for key, hint in get_type_hints(cls).items() if key != "about"}
        literal = {
            key: get_args(hint) for key, hint in hints.items() if get_origin(hint) is Literal
        }
        for choice in product(*literal.values()):
            options = dict(zip(literal, choice, strict=True))
            yield pytest.param(build(name, SYS, options), id="-".join([name, *choice]))
        if "C" in hints:
            kind = "contractive" if cls.C.contractive else "unbiased"
            for sys in (SYS, EVERYONE):
                algo = build(name, sys, {"compressor": MIXED[kind]}, sizes=SIZES)
                yield pytest.param(algo, id=f"{name}-mixed-{sys.S}-of-{sys.N}")
    for name, sys, options in MORE:
        yield pytest.param(build(name, sys, options), id="-".join([name, *options, str(sys.S)]))


every_algorithm = pytest.mark.parametrize("algo", list(variants()))
