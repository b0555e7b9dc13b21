"""One file per method; this is the list of them, and the only way from a name to a value."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from math import prod
from typing import Any, cast, get_type_hints

from tunefree.algorithms.adamasfl import AdaMasFL
from tunefree.algorithms.ca2fl import CA2FL
from tunefree.algorithms.comparfrefl import ComParFreFL
from tunefree.algorithms.decay import Decayed
from tunefree.algorithms.defedavg_niid import DeFedAvgNIID
from tunefree.algorithms.delta_sgd import DeltaSGD
from tunefree.algorithms.fadas import FADAS
from tunefree.algorithms.fafed import FAFED
from tunefree.algorithms.fed_ef_ams import FedEFAMS
from tunefree.algorithms.fed_ef_sgd import FedEFSGD
from tunefree.algorithms.fedams_local import FedAMSLocal
from tunefree.algorithms.fedams_server import FedAMSServer
from tunefree.algorithms.fedavg import FedAvg
from tunefree.algorithms.fedavgm import FedAvgM
from tunefree.algorithms.fedbuff import FedBuff
from tunefree.algorithms.fedcm import FedCM
from tunefree.algorithms.feddyn import FedDyn
from tunefree.algorithms.fedexp import FedExP
from tunefree.algorithms.fednova import FedNova
from tunefree.algorithms.fedopt import FedAdagrad, FedAdam, FedYogi
from tunefree.algorithms.fedprox import FedProx
from tunefree.algorithms.fedsps import FedSPS
from tunefree.algorithms.local_sgd_c import LocalSGDC
from tunefree.algorithms.masfl import MasFL
from tunefree.algorithms.mime import Mime, MimeLite
from tunefree.algorithms.padamfed import PAdaMFed
from tunefree.algorithms.padamfed_vr import PAdaMFedVR
from tunefree.algorithms.parfrefl import ParFreFL
from tunefree.algorithms.polarfl import PolarFL
from tunefree.algorithms.scafcom import Scafcom
from tunefree.algorithms.scaffold import Scaffold
from tunefree.algorithms.scaffold_m import ScaffoldM
from tunefree.algorithms.scaffold_m_vr import ScaffoldMVR
from tunefree.algorithms.scaffold_norm import ScaffoldNorm
from tunefree.algorithms.scallion import Scallion
from tunefree.algorithms.slowmo import SlowMo
from tunefree.config import AlgorithmSettings, Config, Decay, check_option, checked
from tunefree.core import About, Algorithm, System, about, horizon_steps, text_of
from tunefree.errors import ConfigError, unknown
from tunefree.geometry import Shapes
from tunefree.wire import from_spec
from tunefree.wire.compressors import AnyOf, PerTensor

REGISTRY: dict[str, type[Any]] = {
    "polarfl": PolarFL,
    "padamfed": PAdaMFed,
    "padamfed_vr": PAdaMFedVR,
    "parfrefl": ParFreFL,
    "fedavg": FedAvg,
    "scaffold": Scaffold,
    "scaffold_m": ScaffoldM,
    "scaffold_m_vr": ScaffoldMVR,
    "scaffold_norm": ScaffoldNorm,
    "fedavgm": FedAvgM,
    "slowmo": SlowMo,
    "fedexp": FedExP,
    "fedprox": FedProx,
    "fednova": FedNova,
    "feddyn": FedDyn,
    "fedcm": FedCM,
    "fedadagrad": FedAdagrad,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
    "fedams_server": FedAMSServer,
    "fedams_local": FedAMSLocal,
    "mime": Mime,
    "mime_lite": MimeLite,
    "fedsps": FedSPS,
    "delta_sgd": DeltaSGD,
    "fafed": FAFED,
    "comparfrefl": ComParFreFL,
    "scafcom": Scafcom,
    "scallion": Scallion,
    "fed_ef_sgd": FedEFSGD,
    "fed_ef_ams": FedEFAMS,
    "local_sgd_c": LocalSGDC,
    "adamasfl": AdaMasFL,
    "masfl": MasFL,
    "fedbuff": FedBuff,
    "ca2fl": CA2FL,
    "defedavg_niid": DeFedAvgNIID,
    "fadas": FADAS,
}

LEARNING_RATES = ("eta", "gamma", "beta", "lr", "learning_rate", "eta_l", "eta_g", "eta_s", "s")
WRAPPED = ("compressor", "decay")  # options of many methods, and fields of none
COMPRESSING = [name for name, cls in REGISTRY.items() if any(f.name == "C" for f in fields(cls))]


def build(
    name: str,
    sys: System,
    options: Mapping[str, object] = {},
    explicit_steps: bool = False,
    shapes: Shapes = None,
) -> Algorithm:
    """The named algorithm with its options; a tuning-free one takes its steps from `sys`.

    A compressor works on each tensor, of these `shapes`; without them on the vector as one.

    >>> build("padamfed", System(N=50, S=10, K=10, T=400)).eta
    0.005
    """
    check(name, options, explicit_steps)
    cls = REGISTRY[name]
    algo = cls.theory(sys) if cls.about.steps else cls(sys)
    hints = get_type_hints(cls)
    given = {
        key: float(cast("float", value)) if hints[key] is float else value  # eta = 1 is 1.0
        for key, value in options.items()
        if key not in WRAPPED
    }
    if "compressor" in options:
        given["C"] = from_spec(options["compressor"])
    algo = over_tensors(replace(algo, **given), shapes)
    return Decayed(algo) if options.get("decay") == "linear" else algo


def options_of(chosen: AlgorithmSettings) -> dict[str, object]:
    """An algorithm's options, its compressor and its decay among them."""
    compressor = {"compressor": chosen.compressor} if chosen.compressor else {}
    decay = {"decay": chosen.decay} if chosen.decay != "none" else {}
    return {**chosen.options, **compressor, **decay}


def configure(
    settings: Config, shapes: Shapes, make: Callable[[System], Algorithm] | None = None
) -> Algorithm:
    """The algorithm of these settings, or the one that a user's own function makes."""
    chosen, sys = settings.algorithm, settings.constants
    options = options_of(chosen)
    if make is not None and options:
        raise ConfigError(f"{sorted(options)} cannot be given with a function as algorithm")
    if make is None:
        return build(chosen.name, sys, options, chosen.explicit_steps, shapes)
    return over_tensors(make(sys), shapes)


def note_no_momentum(algo: Algorithm) -> None:
    """Say, once a run, that formulas leave no momentum for so few rounds."""
    _, S, K, T = algo.sys
    if "beta" in horizon_steps(algo) and getattr(algo, "beta", 0) >= 1:
        warnings.warn(
            f"the formula gives beta = 1, no momentum, for T = {T} rounds and S*K = {S * K}; more "
            "rounds, or a smaller S or K, bring it back",
            stacklevel=2,
        )


def check_rounds(before: Algorithm, after: Algorithm) -> None:
    """Refuse to give a run another T if its method depends on T; the two are made for one T each.

    A method must say so itself: a formula of `about.steps` has T in it or not. Whether that is true
    is tested for those in the registry, and by `tunefree check` for any other. One without `about`
    says nothing and is refused: to play it for both T on a small problem would prove little, since
    it may heed T late only (a decay after T / 2) or not fit a small problem. What can be seen is
    looked at in any case: no field may have come out differently.
    """
    if before.sys.T == after.sys.T:
        return
    title, formulas = about(after).title, horizon_steps(after)
    names = dict.fromkeys((*(f.name for f in fields(after)), *about(after).steps))
    changed = [
        name
        for name in names
        if name != "sys"
        and text_of(getattr(before, name, None)) != text_of(getattr(after, name, None))
    ]
    why = ""
    if formulas:
        listed = ", ".join(f"{name} = {formula}" for name, formula in formulas.items())
        why = f"{title}'s steps depend on T ({listed})"
    elif changed:
        why = f"{title} was made with another {', '.join(changed)} for another T"
    elif not hasattr(after, "about"):
        why = f"{title} has no `about`, so nothing says that its steps do not depend on T"
    if why:
        raise ConfigError(
            f"{why}: a run of {before.sys.T} rounds cannot become one of {after.sys.T}; begin a "
            "new run, or use a method without a horizon"
        )


def over_tensors(algo: Algorithm, shapes: Shapes) -> Algorithm:
    """The same algorithm; if it or its compressor minds the model's tensors, it knows them."""
    C, known = getattr(algo, "C", None), dict[str, Any]()
    if isinstance(C, PerTensor | AnyOf):
        known["C"] = C.over(None if shapes is None else [prod(shape) for shape in shapes])
    if "shapes" in {f.name for f in fields(algo)}:
        known["shapes"] = shapes
    return replace(algo, **known)


def check(name: str, options: Mapping[str, object], explicit_steps: bool = False) -> None:
    """Refuse a name or an option that cannot work, before anything else is done."""
    if name not in REGISTRY:
        raise unknown("algorithm.name", name, REGISTRY)
    cls = REGISTRY[name]
    said: About = cls.about
    tuning_free = bool(said.steps) and not said.grid
    hints = get_type_hints(cls)
    names = [f.name for f in fields(cls) if f.name not in ("sys", "shapes")]
    allowed = ["compressor" if name == "C" else name for name in names]
    for key, value in options.items():
        step = key in said.steps or (key not in allowed and key in LEARNING_RATES)
        if tuning_free and step and not (explicit_steps and key in allowed):
            study = ", or set algorithm.explicit_steps = true to study what other steps would do"
            raise ConfigError(
                f"algorithm.{key} = {value!r} was given, but {said.title} takes no step size: its "
                f"{', '.join(said.steps)} {said.origin}; leave it out"
                f"{study if key in allowed else ''}"
            )
        if key == "compressor" and key not in allowed:
            raise ConfigError(
                f"algorithm.compressor = {value!r} was given, but {said.title} sends whole "
                f"vectors; leave it out, or choose from {', '.join(sorted(COMPRESSING))}"
            )
        if key == "decay":
            checked("algorithm.decay", value, Decay)
            if value != "none" and not said.grid:
                raise ConfigError(
                    f"algorithm.decay = {value!r} was given, but {said.title} has no step of its "
                    "own to decay; leave it out"
                )
            continue
        if key not in allowed:
            raise unknown(f"algorithm ({name}) option", key, allowed)
        if key == "compressor":
            from_spec(value)
        else:
            check_option(f"algorithm.{key}", value, hints[key])
