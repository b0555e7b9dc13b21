"""All errors: each message is one sentence that says what went wrong and what to do."""

from __future__ import annotations

import difflib
import inspect
import traceback
from collections.abc import Callable, Collection, Iterable
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

__all__ = [
    "ConfigError",
    "FleetError",
    "RecordError",
    "TunefreeError",
    "WireError",
    "unknown_name",
]

P = ParamSpec("P")
R = TypeVar("R")
NOTHING: Final = ...  # no value is given
Spelling: TypeAlias = Callable[[str, object], str]  # of a setting, and of its value if given


class TunefreeError(Exception):
    """The base class of tunefree's errors.

    >>> import tunefree
    >>> try:
    ...     tunefree.load("nowhere.sqlite")
    ... except tunefree.TunefreeError as error:
    ...     type(error).__name__
    'ConfigError'
    """


class ConfigError(TunefreeError, ValueError):
    """A setting that cannot work: names the key, the value, what is allowed and what to do.

    Args:
        problem: What is wrong; about `setting`, if one is given, whose name precedes it.
        remedy: What to do; both may name other settings in braces: "{per_round}".
        setting: The setting's name, or an option's: "option.eta".
        value: The value that it has.

    >>> import tunefree
    >>> tunefree.partition.iid([0, 1, 1], clients=4)
    Traceback (most recent call last):
    tunefree.errors.ConfigError: 3 samples cannot be split across 4 clients; lower clients to at ...
    """

    def __init__(
        self, problem: str, remedy: str = "", *, setting: str = "", value: object = NOTHING
    ) -> None:
        super().__init__(problem, remedy)
        self.problem, self.remedy, self.setting, self.value = problem, remedy, setting, value

    def __str__(self) -> str:
        return self.rendered(plain)

    def rendered(self, spelled: Spelling) -> str:
        """The sentence, with settings and their values spelled as where they were given.

        >>> error = ConfigError("exceeds {clients} = 50", setting="per_round", value=60)
        >>> error.rendered(lambda name, value: f"<{name}>")
        '<per_round> exceeds <clients> = 50'
        """
        sentence = f"{self.problem}; {self.remedy}" if self.remedy else self.problem
        for name in import_module("tunefree.settings").NAMES:  # which needs errors itself
            sentence = sentence.replace(f"{{{name}}}", spelled(name, NOTHING))
        return f"{spelled(self.setting, self.value)} {sentence}" if self.setting else sentence

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (self.problem, self.remedy, self.setting, self.value)


def restored(problem: str, remedy: str, setting: str, value: object) -> ConfigError:
    """An error that came from another process."""
    return ConfigError(problem, remedy, setting=setting, value=value)


def plain(name: str, value: object) -> str:
    """A setting as it is spelled in Python, in files and in run configs.

    >>> plain("per_round", 60), plain("per_round", NOTHING)
    ('per_round = 60', 'per_round')
    """
    return name if value is NOTHING else f"{name} = {value!r}"


class WireError(TunefreeError, ValueError):
    """A message that must not be used, or training that has diverged: says what and when.

    >>> import torch, tunefree
    >>> clients = [(torch.randn(20, 4), torch.randn(20))]
    >>> model = torch.nn.Linear(4, 1)
    >>> wild = tunefree.methods.FedAvg(eta=1e30)
    >>> tunefree.train(model, clients, algorithm=wild, progress=False)
    Traceback (most recent call last):
    tunefree.errors.WireError: ...
    """


class FleetError(TunefreeError, RuntimeError):
    """A client's work that failed: names the client, the exchange and the step.

    >>> import torch, tunefree
    >>> broken = []
    >>> def loss(outputs, targets):
    ...     if broken:
    ...         raise OSError("the disk is gone")
    ...     return ((outputs - targets) ** 2).mean()
    >>> clients = [(torch.randn(20, 4), torch.randn(20, 1))]
    >>> run = tunefree.Run(torch.nn.Linear(4, 1), clients, loss=loss, progress=False)
    >>> for row in run:
    ...     broken.append("after the first row")
    Traceback (most recent call last):
    tunefree.errors.FleetError: client 0 ... the disk is gone
    """


class RecordError(TunefreeError, RuntimeError):
    """A run file that can no longer be written: says why, and how to resume.

    >>> issubclass(RecordError, TunefreeError)
    True
    """


def unknown(setting: str, value: object, allowed: Iterable[str], more: str = "") -> ConfigError:
    """The error for a setting's value that does not exist, with the nearest one that does."""
    remedy = choices(str(value), allowed, more)
    return ConfigError("is not known", remedy, setting=setting, value=value)


def unknown_name(what: str, name: str, allowed: Iterable[str], more: str = "") -> ConfigError:
    """The error for something else that does not exist, with the nearest one that does."""
    return ConfigError(f"{what} = {name!r} is not known", choices(name, allowed, more))


def choices(name: str, allowed: Iterable[str], more: str = "") -> str:
    """What to choose from in place of this name.

    >>> choices("fedavgg", ["fedavg", "polarfl"])
    "did you mean 'fedavg'? choose from fedavg, polarfl"
    """
    names = sorted(allowed)
    near = nearest(name, names)
    hint = f"did you mean {near!r}? " if near else ""
    return f"{hint}choose from {', '.join([*names, *([f'or {more}'] if more else [])])}"


def nearest(name: str, allowed: Iterable[str]) -> str:
    """The allowed name that was probably meant, or an empty string.

    >>> nearest("Etta", ["eta", "gamma"]), nearest("x", ["eta", "gamma"])
    ('eta', '')
    """
    small = {each.lower(): each for each in allowed}
    near = difflib.get_close_matches(name.lower(), small, n=1, cutoff=0.5)
    return small[near[0]] if near else ""


def failure_of(error: Exception) -> str:
    """What a user's own code raised, and in which line of it.

    >>> try:
    ...     {}["age"]
    ... except KeyError as error:
    ...     failure_of(error).partition(" (")[0]
    "KeyError: 'age'"
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename]
    place = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    reason = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}{f': {reason}' if reason else ''}{place}"


def no_argument(
    function: str, key: str, known: Collection[str], what: str = "argument"
) -> ConfigError:
    """The error for a keyword that does not exist, with the nearest one that does."""
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.7) or [*known] * (len(known) == 1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(sorted(known))}"
    return ConfigError(f"{function} has no {what} {key!r}", hint)


def refuses_unknown(function: Callable[P, R]) -> Callable[P, R]:
    """The given function, which now refuses a keyword that it does not have with the nearest one.

    >>> @refuses_unknown
    ... def load(path, model=None): ...
    >>> load("a.sqlite", modell=None)
    Traceback (most recent call last):
    tunefree.errors.ConfigError: load has no argument 'modell'; did you mean 'model'?
    """
    known = [name for name in inspect.signature(function).parameters if name != "cls"]

    @wraps(function)
    def checked(*given: P.args, **named: P.kwargs) -> R:
        for key in named:
            if key not in known:
                raise no_argument(function.__name__, key, known)
        return function(*given, **named)

    return checked
