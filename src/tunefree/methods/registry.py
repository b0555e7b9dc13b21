"""One file per method; this is the registry, the only place where a name becomes an algorithm."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from math import prod
from typing import Any, cast

from tunefree.core import About, Algorithm, System, about, horizon_steps, text_of, unwrapped
from tunefree.errors import ConfigError, nearest
from tunefree.geometry import Shapes
from tunefree.importing import named
from tunefree.methods.adamasfl import AdaMasFL
from tunefree.methods.ca2fl import CA2FL
from tunefree.methods.comparfrefl import ComParFreFL
from tunefree.methods.decay import Decayed, decaying
from tunefree.methods.defedavg_niid import DeFedAvgNIID
from tunefree.methods.delta_sgd import DeltaSGD
from tunefree.methods.fadas import FADAS
from tunefree.methods.fafed import FAFED
from tunefree.methods.fed_ef_ams import FedEFAMS
from tunefree.methods.fed_ef_sgd import FedEFSGD
from tunefree.methods.fedams_local import FedAMSLocal
from tunefree.methods.fedams_server import FedAMSServer
from tunefree.methods.fedavg import FedAvg
from tunefree.methods.fedavgm import FedAvgM
from tunefree.methods.fedbuff import FedBuff
from tunefree.methods.fedcm import FedCM
from tunefree.methods.feddyn import FedDyn
from tunefree.methods.fedexp import FedExP
from tunefree.methods.fednova import FedNova
from tunefree.methods.fedopt import FedAdagrad, FedAdam, FedYogi
from tunefree.methods.fedprox import FedProx
from tunefree.methods.fedsps import FedSPS
from tunefree.methods.local_sgd_c import LocalSGDC
from tunefree.methods.masfl import MasFL
from tunefree.methods.mime import Mime, MimeLite
from tunefree.methods.own import Maker, about_of, checked_maker, made, options_in
from tunefree.methods.padamfed import PAdaMFed
from tunefree.methods.padamfed_vr import PAdaMFedVR
from tunefree.methods.parfrefl import ParFreFL
from tunefree.methods.polarfl import PolarFL
from tunefree.methods.scafcom import Scafcom
from tunefree.methods.scaffold import Scaffold
from tunefree.methods.scaffold_m import ScaffoldM
from tunefree.methods.scaffold_m_vr import ScaffoldMVR
from tunefree.methods.scaffold_norm import ScaffoldNorm
from tunefree.methods.scallion import Scallion
from tunefree.methods.slowmo import SlowMo
from tunefree.methods.weighting import Weighted
from tunefree.settings import (
    FIELDS,
    Decay,
    Settings,
    Weighting,
    check_option,
    check_own_option,
    checked,
)
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
WRAPPED = ("compressor", "decay", "weighting")  # options of many methods, though fields of few
COMPRESSING = [name for name, cls in REGISTRY.items() if "C" in options_in(cls)]


def find(name: str) -> Maker:
    """The class or function behind a name: ours, a package's, or `package.module:Name`.

    >>> find("fedavg").__name__
    'FedAvg'
    """
    found = named("algorithm", name, REGISTRY, more="package.module:Name for your own")
    return REGISTRY[name] if name in REGISTRY else checked_maker(name, found)


def build(
    method: str | Maker,
    sys: System,
    options: Mapping[str, object] = {},
    explicit_steps: bool = False,
    shapes: Shapes = None,
) -> Algorithm:
    """The algorithm with its options; a tuning-free one takes its steps from `sys`.

    A compressor works on each tensor of these `shapes`; without them, on the whole vector.

    >>> build("padamfed", System(N=50, S=10, K=10, T=400)).eta
    0.005
    """
    maker = find(method) if isinstance(method, str) else method
    check(maker, options, explicit_steps)
    hints = options_in(maker)
    given = {
        key: float(cast("float", value)) if hints[key] is float else value  # eta = 1 is 1.0
        for key, value in options.items()
        if key in hints
    }
    if "compressor" in options:
        given["C"] = from_spec(options["compressor"])
    algo = over_tensors(replace(made(maker, sys, **given), **given), shapes)
    if options.get("decay") == "linear":
        if not decaying(algo):
            raise nothing_decays(about(algo), "linear")
        algo = Decayed(algo)
    weighs = options.get("weighting") == "examples" and "weighting" not in hints
    return Weighted(algo) if weighs else algo


def options_of(settings: Settings) -> dict[str, object]:
    """A method's options, including those that many methods share."""
    given = {key: getattr(settings, key) for key in WRAPPED}
    many = {key: value for key, value in given.items() if value != getattr(Settings, key)}
    return {**settings.option, **many}


def configure(
    settings: Settings, sys: System, shapes: Shapes, make: Maker | None = None
) -> Algorithm:
    """The algorithm of these settings, or the one that a user's own class or function makes."""
    method = settings.algorithm if make is None else make
    return build(method, sys, options_of(settings), settings.explicit_steps, shapes)


def note_no_momentum(algo: Algorithm) -> None:
    """Warn, once per run, that the formulas give no momentum for so few rounds."""
    _, S, K, T = algo.sys
    if "beta" in horizon_steps(algo) and getattr(unwrapped(algo), "beta", 0) >= 1:
        warnings.warn(
            f"the formula gives beta = 1, no momentum, for T = {T} rounds and S*K = {S * K}; more "
            "rounds, or a smaller S or K, bring it back",
            stacklevel=2,
        )


def check_rounds(before: Algorithm, after: Algorithm) -> None:
    """Refuse another T for a run whose method depends on T; the two are made for one T each.

    A method must declare this itself: a formula of `about.steps` contains T or not. Whether that is
    true is tested for those in the registry, and by `tunefree check` for any other. One without
    `about` declares nothing and is refused: running it for both T on a small problem would prove
    little, as it may use T only late (a decay after T / 2) or not fit a small problem. The fields
    are compared in any case: none may differ.
    """
    if before.sys.T == after.sys.T:
        return
    title, formulas = about(after).title, horizon_steps(after)
    old, new = unwrapped(before), unwrapped(after)
    names = dict.fromkeys((*(f.name for f in fields(new)), *about(after).steps))
    changed = [
        name
        for name in names
        if name != "sys" and text_of(getattr(old, name, None)) != text_of(getattr(new, name, None))
    ]
    why = ""
    if formulas:
        listed = ", ".join(f"{name} = {formula}" for name, formula in formulas.items())
        why = f"{title}'s steps depend on T ({listed})"
    elif changed:
        why = f"{title} has another {', '.join(changed)} for another T"
    elif not hasattr(new, "about"):
        why = f"{title} has no `about`, so it is not known whether its steps depend on T"
    if why:
        raise ConfigError(
            f"{why}: a run of {before.sys.T} rounds cannot become one of {after.sys.T}; start a "
            "new run, or use a method without a horizon"
        )


def over_tensors(algo: Algorithm, shapes: Shapes) -> Algorithm:
    """The same algorithm, given the model's tensor shapes if it or its compressor uses them."""
    C, known = getattr(algo, "C", None), dict[str, Any]()
    if isinstance(C, PerTensor | AnyOf):
        known["C"] = C.over(None if shapes is None else [prod(shape) for shape in shapes])
    if "shapes" in {f.name for f in fields(algo)}:
        known["shapes"] = shapes
    return replace(algo, **known)


def check(method: str | Maker, options: Mapping[str, object], explicit_steps: bool = False) -> None:
    """Refuse a name or an option that cannot work, before anything else is done."""
    maker = find(method) if isinstance(method, str) else method
    said, hints, ours = about_of(maker), options_in(maker), maker in REGISTRY.values()
    tuning_free = bool(said.steps) and not said.grid
    allowed = ["compressor" if name == "C" else name for name in hints]
    for key, value in options.items():
        step = key in said.steps or (key not in allowed and key in LEARNING_RATES)
        if tuning_free and step and not (explicit_steps and key in allowed):
            study = ", or give {explicit_steps}=true to study what other steps would do"
            raise ConfigError(
                f"was given, but {said.title} takes no step size: its "
                f"{', '.join(said.steps)} {said.origin}",
                f"omit it{study if key in allowed else ''}",
                setting=f"option.{key}",
                value=value,
            )
        if key == "compressor":
            check_compressor(said.title, value, allowed)
        elif key == "decay":
            check_decay(said, value)
        elif key == "weighting" and key not in allowed:
            check_weighting(said, value)
        elif not isinstance(maker, type):
            raise ConfigError(
                f"was given, but {said.title} is a function of N, S, K and T and has no options",
                "set it in the function, or give the class",
                setting=f"option.{key}",
                value=value,
            )
        elif key not in allowed:
            raise no_option(said.title, key, value, allowed)
        elif ours:
            check_option(f"option.{key}", value, hints[key])
        else:
            check_own_option(f"option.{key}", value, hints[key])


def no_option(title: str, key: str, value: object, allowed: Sequence[str]) -> ConfigError:
    """The error for an option that neither the method nor the settings have."""
    near, listed = nearest(key, [*allowed, *FIELDS]), ", ".join(allowed) or "none"
    hint = f"did you mean {near!r}? " if near else ""
    return ConfigError(
        f"is not an option of {title}",
        f"{hint}it takes {listed}",
        setting=f"option.{key}",
        value=value,
    )


def check_compressor(title: str, value: object, allowed: Sequence[str]) -> None:
    if "compressor" not in allowed:
        raise ConfigError(
            f"was given, but {title} sends whole vectors",
            f"omit it, or choose from {', '.join(sorted(COMPRESSING))}",
            setting="compressor",
            value=value,
        )
    from_spec(value)


def check_decay(said: About, value: object) -> None:
    checked("decay", value, Decay)
    if value != "none" and not said.grid:
        raise nothing_decays(said, value)


def nothing_decays(said: About, value: object) -> ConfigError:
    return ConfigError(
        f"was given, but {said.title} has no step of its own to decay",
        "omit it",
        setting="decay",
        value=value,
    )


def check_weighting(said: About, value: object) -> None:
    checked("weighting", value, Weighting)
    if value == "uniform" or said.weights:
        return
    why = "its server does not only average uploads, or does not declare it"
    for mean, of_clients in said.means.items():
        why = f"its {mean} is the mean of all clients' {of_clients}, which weights would break"
    raise ConfigError(
        f"was given, but {said.title} cannot weight clients: {why}",
        "omit it, or sample clients by their examples: {sampling}=examples",
        setting="weighting",
        value=value,
    )
