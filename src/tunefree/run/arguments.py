"""The Python API: its arguments as users write them."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from tunefree.errors import ConfigError, no_argument
from tunefree.methods.own import Maker, about_of, options_in
from tunefree.methods.registry import LEARNING_RATES, WRAPPED, find
from tunefree.settings import Schedule, Settings, load

SCHEDULE = tuple(f.name for f in fields(Schedule) if f.name != "name")
ELSEWHERE = ("lr", "learning_rate", "eta_l")  # what other libraries call a client's step size


def plain(value: object) -> object:
    """The value as settings store it: NumPy numbers, torch devices and paths are accepted too.

    >>> plain(np.int64(20)), plain(torch.device("cpu"))
    (20, 'cpu')
    """
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, torch.device | Path) else value


def settings_of(
    given: Mapping[str, object], schedule: Schedule | str, options: Mapping[str, object] = {}
) -> Settings:
    """The settings given by keywords; None counts as not given.

    >>> settings_of({"rounds": np.int64(20), "per_round": None}, "synchronous").rounds
    20
    """
    chosen = schedule if isinstance(schedule, Schedule) else Schedule(cast("Any", schedule))
    shared = (*WRAPPED, "explicit_steps")
    own = {key if key in shared else f"option.{key}": value for key, value in options.items()}
    known = {key: value for key, value in given.items() if value is not None}
    named = {**known, **chosen.as_settings(), **own}
    return load(None, {key: plain(value) for key, value in named.items()})


def check_options(
    options: Mapping[str, object], algorithm: str | Maker, arguments: Collection[str]
) -> None:
    """Refuse a keyword that is neither an argument of `train` nor an option of the method.

    A step size for a method that takes none is refused later, with the reason.
    """
    maker = find(algorithm) if isinstance(algorithm, str) else algorithm
    said = about_of(maker)
    own = ["compressor" if name == "C" else name for name in options_in(maker)]
    steps = () if said.grid else said.steps  # it takes none
    for key in options:
        if key in (*own, *WRAPPED, "explicit_steps") or (steps and key in LEARNING_RATES):
            continue
        if key in SCHEDULE:
            raise ConfigError(
                f"train has no argument {key!r}; it belongs to the schedule: "
                f"schedule=tunefree.Schedule({key}={options[key]!r})"
            )
        choice = [name for name in own if name not in steps]
        if key in ELSEWHERE and "eta" in choice:
            raise no_argument("train", key, ["eta"])
        if isinstance(maker, type) or difflib.get_close_matches(key, arguments, n=1):
            raise no_argument("train", key, [*arguments, *choice])
