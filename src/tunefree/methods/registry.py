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
from tunefree.methods.own import Maker, about_of, checked_maker, made, options_in, title_of
from tunefree.methods.played import Averaged, Decayed, Weighted, decaying
from tunefree.methods.robust import Robust
from tunefree.settings import (
    FIELDS,
    HINTS,
    Settings,
    check_option,
    check_own_option,
    checked,
)
from tunefree.wire import from_spec

REGISTRY: dict[str, type[Method]] = {
    "polarfl": methods.PolarFL,
    "polarfl_stateless": methods.PolarFLStateless,
    "padamfed": methods.PAdaMFed,
    "padamfed_vr": methods.PAdaMFedVR,
    "parfrefl": methods.ParFreFL,
    "fedavg": methods.FedAvg,
    "scaffold": methods.Scaffold,
    "fedavgm": methods.FedAvgM,
    "fedprox": methods.FedProx,
    "fednova": methods.FedNova,
    "fedadagrad": methods.FedAdagrad,
    "fedadam": methods.FedAdam,
    "fedyogi": methods.FedYogi,
    "comparfrefl": methods.ComParFreFL,
    "adamasfl": methods.AdaMasFL,
    "masfl": methods.MasFL,
    "fedbuff": methods.FedBuff,
}

LEARNING_RATES = ("eta", "gamma", "beta", "lr", "learning_rate", "eta_l", "eta_g", "eta_s", "s")
WRAPPED = ("compressor", "decay", "weighting", "robust", "average")  # options of many methods
NOTHING_DECAYS = ("has no step of its own to decay", "omit it")
OURS = ("tunefree", "tunefree_evidence")  # packages whose options are all positive numbers


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


def is_ours(maker: Maker) -> bool:
    """Whether a method is one of tunefree or its evidence, not a user's own."""
    cls = maker if isinstance(maker, type) else type(maker)
    return cls.__module__.partition(".")[0] in OURS


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
            raise refused(about(algo), "decay", "linear", *NOTHING_DECAYS)
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
    tuning_free = bool(said.steps) and not said.grid
    allowed = ["compressor" if name == "C" else name for name in hints]
    given = {**chosen_by_hand(maker), **options}
    for key, value in given.items():
        step = key in said.steps or (key not in allowed and key in LEARNING_RATES)
        if tuning_free and step and not (explicit_steps and key in allowed):
            study = ", or give {explicit_steps}=true to study what other steps would do"
            problem = f"takes no step size: its {', '.join(said.steps)} {said.origin}"
            remedy = f"omit it{study if key in allowed else ''}"
            raise refused(said, f"option.{key}", value, problem, remedy)
        if key in WRAPPED and (key not in allowed or key in ("compressor", "decay", "robust")):
            if why := cannot(said, key, value, allowed, given.get("weighting", "uniform")):
                raise refused(said, key, value, *why)
        elif not isinstance(maker, Method | type):
            problem = "is a function of N, S, K and T and has no options"
            remedy = "set it in the function, or give the class"
            raise refused(said, f"option.{key}", value, problem, remedy)
        elif key not in allowed:
            near, listed = nearest(key, [*allowed, *FIELDS]), ", ".join(allowed) or "none"
            hint = f"did you mean {near!r}? " if near else ""
            problem = f"is not an option of {said.title}"
            raise ConfigError(
                problem, f"{hint}it takes {listed}", setting=f"option.{key}", value=value
            )
        elif is_ours(maker):
            check_option(f"option.{key}", value, hints[key])
        else:
            check_own_option(f"option.{key}", value, hints[key])


def refused(said: About, name: str, value: object, problem: str, remedy: str) -> ConfigError:
    problem = f"was given, but {said.title} {problem}"
    return ConfigError(problem, remedy, setting=name, value=value)


def cannot(
    said: About, key: str, value: object, allowed: Sequence[str], weighting: object
) -> tuple[str, str] | None:
    """Why a method cannot be played in this way, and what to do; None if it can."""
    if key == "compressor":
        if key not in allowed:
            compressing = sorted(name for name, cls in REGISTRY.items() if "C" in options_in(cls))
            return "sends whole vectors", f"omit it, or choose from {', '.join(compressing)}"
        from_spec(value)
        return None
    checked(key, value, HINTS[Settings][key])
    if value == getattr(Settings, key):
        return None
    if key == "decay" and not said.grid:
        return NOTHING_DECAYS
    if key == "weighting" and not said.weights:
        remedy = "omit it, or sample clients by their examples: {sampling}=examples"
        return f"cannot weight clients: {no_mean(said, 'weights')}", remedy
    if key == "robust" and not (can_be_robust(said) and weighting == "uniform"):
        can = can_be_robust(said)
        why = "its clients are weighted" if can else no_mean(said, "another centre")
        named = ", ".join(n for n, c in REGISTRY.items() if can_be_robust(about_of(c)))
        remedy = f"omit it, or choose from {named} without {{weighting}}"
        return f"cannot aggregate so: {why}", remedy
    return None


def can_be_robust(said: About) -> bool:
    return said.weights == "mean" or bool(said.means)


def no_mean(said: About, other: str) -> str:
    """Why a server's uploads can only be averaged as they are."""
    if said.means:
        mean, of_clients = next(iter(said.means.items()))
        return f"its {mean} is the mean of all clients' {of_clients}, which {other} would break"
    return "its server does not only average uploads, or does not declare it"
