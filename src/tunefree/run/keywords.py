"""The keyword arguments of `train`, `Run` and `compare`, as users write them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, TypeVar, cast

import numpy as np
import torch

from tunefree.core import Method
from tunefree.data.samples import Federation
from tunefree.errors import ConfigError, no_argument
from tunefree.methods.fedavg import FedAvg
from tunefree.methods.own import Maker, about_of, options_in, title_of
from tunefree.methods.registry import LEARNING_RATES, REGISTRY, WRAPPED, chosen_by_hand, name_of
from tunefree.models.targets import Loss
from tunefree.privacy.promise import Privacy
from tunefree.run.evaluate import Measure
from tunefree.settings import (
    FIELDS,
    PRIVATE,
    Average,
    BatchNorm,
    Decay,
    FleetName,
    Kernels,
    Robust,
    Sampling,
    Schedule,
    ScheduleName,
    Settings,
    Weighting,
    load,
)

F = TypeVar("F", bound=Callable[..., Any])
NO_SETTINGS = ("client_test", "evaluate", "loss", "name", "progress", "privacy")
OPTIONS = {name for maker in REGISTRY.values() for name in options_in(maker)}
ELSEWHERE = ("lr", "learning_rate", "eta_l")  # what other libraries call a client's step size


class Shared(TypedDict, total=False):
    """Those that all methods of a comparison share; `train` explains each."""

    rounds: int
    per_round: int | None
    local_steps: int | None
    local_epochs: int | None
    sampling: Sampling | Sequence[float]
    batch_size: int
    standardise: bool
    local: str | Sequence[str]
    batch_norm: BatchNorm
    clip_gradients: float
    accumulate: int
    compressor: str
    decay: Decay
    weighting: Weighting
    robust: Robust
    average: Average
    explicit_steps: bool
    eval_every: int
    evaluate: Measure | None
    loss: Loss | None
    schedule: Schedule | ScheduleName
    privacy: Privacy | None
    secure: bool
    attack: str
    grad_norm: bool
    device: str | torch.device
    fleet: FleetName
    workers: int
    kernels: Kernels
    commit_every: int


class Keywords(Shared, total=False):
    """Those of a single run."""

    algorithm: str | Maker
    client_test: Any | None
    seed: int | None
    name: str
    out: str | Path | None
    progress: bool


class Again(TypedDict, total=False):
    """Those of a run that is resumed."""

    algorithm: Maker | None
    loss: Loss | None
    evaluate: Measure | None
    client_test: Any | None
    rounds: int | None
    readmit: Sequence[int | str]
    without: Sequence[int | str]
    from_round: int | None
    fleet: FleetName
    workers: int
    progress: bool


def named(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings among these keywords, by name; None counts as not given.

    >>> named({"rounds": np.int64(20), "per_round": None})
    {'rounds': 20}
    """
    found = {
        key: plain(value)
        for key, value in given.items()
        if value is not None and (key not in NO_SETTINGS or is_share(key, value))
    }
    if isinstance(schedule := given.get("schedule"), Schedule):
        found |= schedule.as_settings()
    if (privacy := given.get("privacy")) is not None:
        if not isinstance(privacy, Privacy):
            raise ConfigError(
                "is no promise",
                "write tunefree.Privacy(epsilon=8)",
                setting="privacy",
                value=privacy,
            )
        found |= privacy.as_settings()
    return found


def is_share(key: str, value: object) -> bool:
    """Whether this is the share of clients' samples to hold out, not held-out data."""
    return key == "client_test" and isinstance(value, float)


def settings_of(given: Mapping[str, Any], federation: Federation) -> Settings:
    """The settings of a user's own model and clients, with these keywords."""
    clients = len(federation)
    if federation.batch_size:  # of DataLoaders
        given = {"batch_size": federation.batch_size, **given}
    usual = Settings.algorithm if given.get("privacy") is None else PRIVATE
    method = spelled(given.get("algorithm", usual)) or {"algorithm": ""}
    return load(None, {**named(given), "clients": clients, "data": "", "partition": "", **method})


def spelled(algorithm: str | Maker) -> dict[str, object]:
    """The settings that name a method and its options; empty for a user's own method.

    Of a value, these are what would be tuned, and what is not at its default.

    >>> spelled(FedAvg(eta=0.1, weighting="examples"))
    {'algorithm': 'fedavg', 'option.eta': 0.1, 'weighting': 'examples'}
    """
    if isinstance(algorithm, str):
        return {"algorithm": algorithm}
    cls = algorithm if isinstance(algorithm, type) else type(algorithm)
    name = name_of(cls)
    if not name or not isinstance(algorithm, Method):
        return {"algorithm": name} if name else {}
    tuned = {name: getattr(algorithm, name) for name in algorithm.about.grid}
    chosen = tuned | chosen_by_hand(algorithm)
    if (compressor := getattr(algorithm, "C", None)) != getattr(cls, "C", None):
        chosen["compressor"] = str(compressor)
    own = {key if key in WRAPPED else f"option.{key}": v for key, v in chosen.items()}
    return {"algorithm": name, **{key: plain(value) for key, value in own.items()}}


def plain(value: object) -> object:
    """The value as settings store it: NumPy numbers, torch devices and paths are accepted too.

    >>> plain(np.int64(20)), plain(torch.device("cpu"))
    (20, 'cpu')
    """
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, torch.device | Path) else value


def shows(keywords: type[Any]) -> Callable[[F], F]:
    """Let `help` and notebooks see these keywords and their defaults in a function's signature."""

    def decorated(function: F) -> F:
        own = inspect.signature(function).parameters.values()
        kept = [each for each in own if each.kind is not inspect.Parameter.VAR_KEYWORD]
        shown = [
            inspect.Parameter(
                key,
                inspect.Parameter.KEYWORD_ONLY,
                default=usual(key, hint.__forward_arg__),
                annotation=hint.__forward_arg__,  # as it is written
            )
            for key, hint in keywords.__annotations__.items()
        ]
        signature = inspect.Signature([*kept, *shown])
        function.__signature__ = signature  # type: ignore[attr-defined]
        return function

    return decorated


def check(function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Refuse keywords that are not in the signature of the function."""
    known = list(inspect.signature(function).parameters)
    for key in given:
        if key not in known:
            raise not_taken(function.__name__, key, given, known)


def usual(key: str, hint: str) -> object:
    """The default of a keyword; None where it may be, but a seed is drawn only when asked."""
    if "None" in hint and key != "seed":
        return None
    return (
        FIELDS[key].default
        if key in FIELDS
        else {"progress": True, "readmit": (), "without": ()}.get(key, "")
    )


def not_taken(
    function: str, key: str, given: Mapping[str, Any], known: Sequence[str]
) -> ConfigError:
    """The error for a keyword that a function does not take, with where it belongs."""
    has_none, value = f"{function} has no argument {key!r}", given[key]
    if key in Schedule.__dataclass_fields__ and "schedule" in known:
        where = f"schedule=tunefree.Schedule({key}={value!r})"
        return ConfigError(has_none, f"it belongs to the schedule: {where}")
    if key in Privacy.__dataclass_fields__:
        epsilon = "" if key == "epsilon" else "epsilon=8, "
        where = f"privacy=tunefree.Privacy({epsilon}{key}={value!r})"
        return ConfigError(has_none, f"it belongs to privacy: {where}")
    if function == "compare" and key in ("data", "partition", "data_dir"):
        return by_name(function, key, value)
    if function != "train" or (key not in OPTIONS and key not in ELSEWHERE):
        return no_argument(function, key, known)
    algorithm, option = given.get("algorithm", Settings.algorithm), key
    named = REGISTRY.get(algorithm, FedAvg) if isinstance(algorithm, str) else algorithm
    maker = cast("Maker", named)
    said = about_of(maker)
    if key in LEARNING_RATES and said.steps and not said.grid:
        has_none += (
            f", and {said.title} takes no step size: its {', '.join(said.steps)} {said.origin}"
        )
    if key in ELSEWHERE:
        option = "eta"
    if not said.grid or option not in options_in(maker):
        every: list[type[Method]] = [FedAvg, *REGISTRY.values()]
        maker = next(each for each in every if option in options_in(each))
    where = f"algorithm=tunefree.methods.{title_of(maker)}({option}={value!r})"
    return ConfigError(has_none, f"give it to a method that takes it: {where}")


def by_name(function: str, key: str, value: object) -> ConfigError:
    """The error for what is given by its name to a function that takes the user's own."""
    return ConfigError(
        f"{function} takes a model and clients of your own, not {key} = {value!r}",
        "by name: tunefree.search.compare(methods, tunefree.search.settings(data='digits'))",
    )
