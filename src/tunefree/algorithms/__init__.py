"""One file per method; this is the list of them, and the only way from a name to a value."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, get_args, get_type_hints

from tunefree.algorithms.fedavg import FedAvg
from tunefree.algorithms.padamfed import PAdaMFed
from tunefree.algorithms.padamfed_vr import PAdaMFedVR
from tunefree.algorithms.parfrefl import ParFreFL
from tunefree.algorithms.scaffold import Scaffold
from tunefree.algorithms.scaffold_m import ScaffoldM
from tunefree.algorithms.scaffold_m_vr import ScaffoldMVR
from tunefree.algorithms.scaffold_norm import ScaffoldNorm
from tunefree.core import About, Algorithm, ConfigError, System, unknown

REGISTRY: dict[str, type[Any]] = {
    "padamfed": PAdaMFed,
    "padamfed_vr": PAdaMFedVR,
    "parfrefl": ParFreFL,
    "fedavg": FedAvg,
    "scaffold": Scaffold,
    "scaffold_m": ScaffoldM,
    "scaffold_m_vr": ScaffoldMVR,
    "scaffold_norm": ScaffoldNorm,
}

LEARNING_RATES = ("eta", "gamma", "beta", "lr", "learning_rate", "eta_l", "eta_g", "s")


def build(
    name: str, sys: System, options: Mapping[str, object] = {}, explicit_steps: bool = False
) -> Algorithm:
    """The named algorithm with its options; a tuning-free one takes its steps from `sys`.

    >>> build("padamfed", System(N=50, S=10, K=10, T=400)).eta
    0.005
    """
    if name not in REGISTRY:
        raise unknown("algorithm.name", name, REGISTRY)
    cls = REGISTRY[name]
    about: About = cls.about
    tuning_free = bool(about.steps) and not about.grid
    hints = get_type_hints(cls)
    allowed = [field.name for field in fields(cls) if field.name != "sys"]
    for key, value in options.items():
        step = key in about.steps or (key not in allowed and key in LEARNING_RATES)
        if tuning_free and step and not (explicit_steps and key in allowed):
            raise ConfigError(
                f"algorithm.{key} = {value!r} was given, but {about.title} takes no step size: its "
                f"{', '.join(about.steps)} follow from N, S, K and T; leave it out, or set "
                "algorithm.explicit_steps = true to study what other steps would do"
            )
        if key not in allowed:
            raise unknown(f"algorithm ({name}) option", key, allowed)
        check_option(f"algorithm.{key}", value, hints[key])
    if about.steps:
        return replace(cls.theory(sys), **options)  # type: ignore[no-any-return]
    return cls(sys, **options)  # type: ignore[no-any-return]


def check_option(key: str, value: object, hint: object) -> None:
    """Refuse a value of the wrong kind, or a step that is not a positive finite number."""
    choices = get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        if value not in choices:
            raise unknown(key, str(value), choices)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{key} = {value!r} is not a number; give a positive number")
    elif not 0 < value < float("inf"):
        raise ConfigError(f"{key} = {value!r} is out of range; give a positive finite number")
    elif key == "algorithm.beta" and value > 1:
        raise ConfigError(f"{key} = {value!r} is out of range; a weight lies between 0 and 1")
