"""The Python API: its arguments as users write them, and errors that name these arguments."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path

import numpy as np
import torch

from tunefree.config import SECTIONS, Schedule, argument_keys, build
from tunefree.errors import FLAG, ConfigError, no_argument, reworded
from tunefree.methods.own import Maker, about_of, options_in
from tunefree.methods.registry import LEARNING_RATES, WRAPPED, find

KEY = re.compile(r"(?<![\w./'\"-])(system|algorithm|data|model|run)\.([A-Za-z_]\w*)")
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


def schedule_of(given: Schedule | str) -> Schedule:
    """A schedule, also where only its name was given."""
    return given if isinstance(given, Schedule) else build("schedule", {"name": given})


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


def named() -> AbstractContextManager[None]:
    """Errors name Python arguments instead of settings keys and command-line flags."""
    return reworded(in_python)


def in_python(sentence: str) -> str:
    """
    >>> in_python("system.T = 0 is too small; raise it (--rounds)")
    'rounds = 0 is too small; raise it (rounds)'
    >>> in_python("set algorithm.explicit_steps = true; see 'run.out'")
    "set explicit_steps=True; see 'run.out'"
    """
    names = {key: name for name, key in argument_keys().items()}
    keys = {f"{section}.{f.name}" for section, cls in SECTIONS.items() for f in fields(cls)}

    def argument(match: re.Match[str]) -> str:
        known = match[0] in keys or match[1] == "algorithm"
        return names.get(match[0], match[2]) if known else match[0]

    def flag(match: re.Match[str]) -> str:
        name = match[1].replace("-", "_")
        return name if name in argument_keys() else match[0]

    sentence = sentence.replace("algorithm.explicit_steps = true", "explicit_steps=True")
    return FLAG.sub(flag, KEY.sub(argument, sentence))
