"""One file per method; this is the registry, the only place where a name becomes an algorithm."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, cast

from tunefree import methods
from tunefree.core import (
    About,
    Method,
    Shapes,
    System,
    about,
    as_data,
    bind,
    horizon_steps,
    numbers,
    step_sizes,
    unwrapped,
)
from tunefree.core import options as choices
from tunefree.errors import ConfigError, nearest
from tunefree.importing import named, offers
from tunefree.methods.averaging import Averaged
from tunefree.methods.decay import Decayed, decaying
from tunefree.methods.own import Maker, about_of, checked_maker, made, options_in, title_of
from tunefree.methods.robust import Robust
from tunefree.methods.weighting import Weighted
from tunefree.settings import (
    FIELDS,
    Average,
    Decay,
    Settings,
    Weighting,
    check_option,
    check_own_option,
    checked,
)
from tunefree.settings import Robust as RobustRule
from tunefree.wire import from_spec

REGISTRY: dict[str, type[Method]] = {
    "polarfl": methods.PolarFL,
    "polarfl_stateless": methods.PolarFLStateless,
    "padamfed": methods.PAdaMFed,
    "padamfed_vr": methods.PAdaMFedVR,
    "parfrefl": methods.ParFreFL,
    "fedavg": methods.FedAvg,
    "scaffold": methods.Scaffold,
    "scaffold_m": methods.ScaffoldM,
    "scaffold_m_vr": methods.ScaffoldMVR,
    "scaffold_norm": methods.ScaffoldNorm,
    "fedavgm": methods.FedAvgM,
    "slowmo": methods.SlowMo,
    "fedexp": methods.FedExP,
    "fedprox": methods.FedProx,
    "fednova": methods.FedNova,
    "feddyn": methods.FedDyn,
    "fedcm": methods.FedCM,
    "fedadagrad": methods.FedAdagrad,
    "fedadam": methods.FedAdam,
    "fedyogi": methods.FedYogi,
    "fedams_server": methods.FedAMSServer,
    "fedams_local": methods.FedAMSLocal,
    "mime": methods.Mime,
    "mime_lite": methods.MimeLite,
    "fedsps": methods.FedSPS,
    "delta_sgd": methods.DeltaSGD,
    "fafed": methods.FAFED,
    "comparfrefl": methods.ComParFreFL,
    "scafcom": methods.Scafcom,
    "scallion": methods.Scallion,
    "fed_ef_sgd": methods.FedEFSGD,
    "fed_ef_ams": methods.FedEFAMS,
    "local_sgd_c": methods.LocalSGDC,
    "adamasfl": methods.AdaMasFL,
    "masfl": methods.MasFL,
    "fedbuff": methods.FedBuff,
    "ca2fl": methods.CA2FL,
    "defedavg_niid": methods.DeFedAvgNIID,
    "fadas": methods.FADAS,
}

LEARNING_RATES = ("eta", "gamma", "beta", "lr", "learning_rate", "eta_l", "eta_g", "eta_s", "s")
WRAPPED = (
    "compressor",
    "decay",
    "weighting",
    "robust",
    "average",
)  # options of many methods, though fields of few
COMPRESSING = [name for name, cls in REGISTRY.items() if "C" in options_in(cls)]


def find(name: str | Maker) -> Maker:
    """What a name stands for: ours, a package's or `package.module:Name`; it is checked.

    >>> find("fedavg")
    <class 'tunefree.methods.fedavg.FedAvg'>
    """
    if not isinstance(name, str):
        return checked_maker(title_of(name), name)
    found = named("algorithm", name, REGISTRY, more="package.module:Name for your own")
    return REGISTRY[name] if name in REGISTRY else checked_maker(name, found)


def every_name() -> dict[str, str]:
    """All methods by name, ours and those of installed packages, each with its package."""
    theirs = {offer.name: offer.package for offer in offers("algorithm")}
    return dict.fromkeys(REGISTRY, "tunefree") | {
        name: package for name, package in theirs.items() if name not in REGISTRY
    }


def name_of(cls: type[Any]) -> str:
    """The name of a class, ours or an installed package's; empty if it has none."""
    ours = [name for name, known in REGISTRY.items() if known is cls]
    path = f"{cls.__module__}:{cls.__qualname__}"
    return (ours or [offer.name for offer in offers("algorithm") if offer.path == path] or [""])[0]


def build(
    method: str | Maker,
    sys: System,
    options: Mapping[str, object] = {},
    explicit_steps: bool = False,
    shapes: Shapes = None,
) -> Method:
    """The method with its options, bound to the constants and the model's tensor shapes.

    >>> build("padamfed", System(N=50, S=10, K=10, T=400)).eta
    0.005
    """
    maker = find(method)
    check(maker, options, explicit_steps)
    hints = options_in(maker)
    given = {
        key: float(cast("float", value)) if hints[key] is float else value  # eta = 1 is 1.0
        for key, value in {**chosen_by_hand(maker), **options}.items()
        if key in hints
    }
    if "compressor" in options:
        given["C"] = from_spec(options["compressor"])
    algo = bind(made(maker, sys, given), sys, shapes)
    if options.get("decay") == "linear":
        if not decaying(algo):
            raise nothing_decays(about(algo), "linear")
        algo = Decayed(algo, sys=sys)
    if (rule := options.get("robust", "none")) != "none":
        algo = Robust(algo, rule=str(rule), sys=sys)
    elif options.get("weighting") == "examples" and "weighting" not in hints:
        algo = Weighted(algo, sys=sys)
    averages = options.get("average") == "on" and "average" not in hints
    return Averaged(algo, sys=sys) if averages else algo


def chosen_by_hand(maker: Maker) -> dict[str, Any]:
    """The options that a method's value has and its class has not, but for its compressor."""
    if not isinstance(maker, Method):
        return {}
    usual = {f.name: f.default for f in fields(maker)}
    return {k: v for k, v in choices(maker).items() if k != "C" and v != usual[k]}


def options_of(settings: Settings) -> dict[str, object]:
    """A method's options, including those that many methods share."""
    given = {key: getattr(settings, key) for key in WRAPPED}
    many = {key: value for key, value in given.items() if value != getattr(Settings, key)}
    return {**settings.option, **many}


def configure(settings: Settings, sys: System, shapes: Shapes, make: Maker | None = None) -> Method:
    """The method of these settings, or a user's own value, class or function with their options."""
    method = settings.algorithm if make is None else make
    of_sums = about_of(find(method)).summed if settings.secure else None
    options = {**options_of(settings), **(of_sums or {})}
    return build(method, sys, options, settings.explicit_steps, shapes)


def note_no_momentum(algo: Method) -> None:
    """Warn, once per run, that the formulas give no momentum for so few rounds."""
    _, S, K, T = algo.sys
    if "beta" in horizon_steps(algo) and step_sizes(algo).get("beta", 0) >= 1:
        warnings.warn(
            f"the formula gives beta = 1, no momentum, for T = {T} rounds and S*K = {S * K}; more "
            "rounds, or a smaller S or K, bring it back",
            stacklevel=2,
        )


def check_rounds(before: Method, after: Method) -> None:
    """Refuse another T for a run whose method depends on T; the two are bound to one T each.

    A method must declare this itself: a step of `about.steps` depends on T or not. Whether that is
    true is tested for those in the registry, and by `tunefree check` for any other. One without
    `about` declares nothing and is refused: running it for both T on a small problem would prove
    little, as it may use T only late (a decay after T / 2) or not fit a small problem. The values
    are compared in any case: none may differ.
    """
    if before.sys.T == after.sys.T:
        return
    title, formulas = about(after).title, horizon_steps(after)
    old, new = as_data(numbers(before)), as_data(numbers(after))
    why = ""
    if formulas:
        listed = ", ".join(f"{name} = {formula}" for name, formula in formulas.items())
        why = f"{title}'s steps depend on T ({listed})"
    elif changed := [name for name in new if old.get(name) != new[name]]:
        why = f"{title} has another {', '.join(changed)} for another T"
    elif not unwrapped(after).about.title:
        why = f"{title} has no `about`, so it is not known whether its steps depend on T"
    if why:
        raise ConfigError(
            f"{why}: a run of {before.sys.T} rounds cannot become one of {after.sys.T}; start a "
            "new run, or use a method without a horizon"
        )


def check(method: str | Maker, options: Mapping[str, object], explicit_steps: bool = False) -> None:
    """Refuse a name or an option that cannot work, before anything else is done."""
    maker = find(method)
    said, hints = about_of(maker), options_in(maker)
    ours = (maker if isinstance(maker, type) else type(maker)) in REGISTRY.values()
    tuning_free = bool(said.steps) and not said.grid
    allowed = ["compressor" if name == "C" else name for name in hints]
    for key, value in {**chosen_by_hand(maker), **options}.items():
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
        elif key == "average" and key not in allowed:
            checked("average", value, Average)
        elif key == "robust":
            given = {"weighting": "uniform", **chosen_by_hand(maker), **options}
            check_robust(said, value, given["weighting"])
        elif not isinstance(maker, Method | type):
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


def check_robust(said: About, value: object, weighting: object) -> None:
    checked("robust", value, RobustRule)
    if value == "none" or (said.weights == "mean" and weighting == "uniform"):
        return
    why = no_mean(said, "another centre") if said.weights != "mean" else "its clients are weighted"
    averaging = [n for n, c in REGISTRY.items() if about_of(c).weights == "mean"]
    raise ConfigError(
        f"was given, but {said.title} cannot aggregate so: {why}",
        f"omit it, or choose from {', '.join(averaging)} without {{weighting}}",
        setting="robust",
        value=value,
    )


def no_mean(said: About, other: str) -> str:
    """Why a server's uploads can only be averaged as they are."""
    why = "its server does not only average uploads, or does not declare it"
    if said.means:
        mean, of_clients = next(iter(said.means.items()))
        why = f"its {mean} is the mean of all clients' {of_clients}, which {other} would break"
    return why


def check_weighting(said: About, value: object) -> None:
    checked("weighting", value, Weighting)
    if value == "uniform" or said.weights:
        return
    raise ConfigError(
        f"was given, but {said.title} cannot weight clients: {no_mean(said, 'weights')}",
        "omit it, or sample clients by their examples: {sampling}=examples",
        setting="weighting",
        value=value,
    )
