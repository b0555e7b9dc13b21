"""Every method, ours and the evidence's, with every choice that its options offer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from tunefree.core import Algorithm, System
from tunefree.core import options as method_options
from tunefree.methods.own import options_in
from tunefree.methods.registry import build, every_name, find

METHODS: dict[str, Any] = {
    name: find(name)
    for name, package in every_name().items()
    if package in ("tunefree", "tunefree-evidence")
}
COMPRESSING = [name for name, cls in METHODS.items() if "C" in options_in(cls)]
SYS = System(N=6, S=3, K=2, T=8)
EVERYONE = SYS._replace(S=SYS.N, K=1)
SHAPES = ((2, 2), (1,))  # of the tensors that make up the problem's vector
MIXED = {
    "contractive": "any:top:0.5|rand:0.5|sign|rotated:2|qsgd-contractive:4|identity@whole",
    "unbiased": "any:rand-unbiased:0.5|qsgd:4|rand-unbiased:0.2@whole",
}
MORE: dict[str, list[dict[str, object]]] = {  # beyond those that a Literal lists
    "fednova": [{"rho": 0.5}, {"mu": 0.5, "effective": "steps"}],
}


def choices(name: str) -> Iterator[Mapping[str, object]]:
    """The options to try, none of them first."""
    cls = METHODS[name]
    hints = {key: hint for key, hint in get_type_hints(cls).items() if key != "about"}
    literals = {key: get_args(hint) for key, hint in hints.items() if get_origin(hint) is Literal}
    if len(literals) > 2:  # too many together: one after the other
        yield {}
        yield from ({key: value} for key, (_, *rest) in literals.items() for value in rest)
    else:
        yield from (dict(zip(literals, v, strict=True)) for v in product(*literals.values()))
    if "C" in hints:
        own = method_options(cls())["C"]
        unbiased = own is not None and not own.contractive
        yield {"compressor": MIXED["unbiased" if unbiased else "contractive"]}
    yield from MORE.get(name, [])


def variants() -> Iterator[tuple[str, Callable[[System], Algorithm]]]:
    """A name for each, and what builds it."""
    for name in METHODS:
        for options in choices(name):
            words = ["mixed" if key == "compressor" else f"{options[key]}" for key in options]
            yield "-".join([name, *words]), partial(build, name, options=options, shapes=SHAPES)


def algorithms() -> Iterator[Any]:
    """Each with some of the clients, and where compressors differ with all of them too."""
    for name, builder in variants():
        yield pytest.param(builder(SYS), id=name)
        if name.endswith("mixed") or name == "fafed":
            yield pytest.param(builder(EVERYONE), id=f"{name}-everyone")


def subjects() -> Iterator[Any]:
    """To be checked with several systems; further choices of a Literal with one of them."""
    seen = set()
    for name, builder in variants():
        method, _, choice = name.partition("-")
        several = method not in seen or choice == "mixed"
        yield pytest.param(builder if several else builder(SYS), id=name)
        seen.add(method)


every_subject = pytest.mark.parametrize("subject", list(subjects()))
every_algorithm = pytest.mark.parametrize("algo", list(algorithms()))
