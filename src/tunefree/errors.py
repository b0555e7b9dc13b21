"""All errors: each message is one sentence that says what went wrong and what to do."""

from __future__ import annotations

import difflib
import inspect
import re
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
FLAG = re.compile(r"(?<![\w-])--([a-z]+(?:-[a-z]+)*)")  # of the command line, in a sentence


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

    >>> import tunefree
    >>> tunefree.partition.iid([0, 1, 1], clients=4)
    Traceback (most recent call last):
    tunefree.errors.ConfigError: 3 samples cannot be split across 4 clients; lower the number of ...
    """


class WireError(TunefreeError, ValueError):
    """A message that must not be used, or training that has diverged: says what and when.

    >>> import torch, tunefree
    >>> clients = [(torch.randn(20, 4), torch.randn(20))]
    >>> model = torch.nn.Linear(4, 1)
    >>> tunefree.train(model, clients, algorithm="fedavg", eta=1e30, progress=False)
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


def unknown(key: str, value: str, allowed: Iterable[str], more: str = "") -> ConfigError:
    """The error for a name that does not exist, with the nearest one that does."""
    names = sorted(allowed)
    near = nearest(value, names)
    hint = f"did you mean {near!r}? " if near else ""
    choices = ", ".join([*names, *([f"or {more}"] if more else [])])
    return ConfigError(f"{key} = {value!r} is not known; {hint}choose from {choices}")


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


@contextmanager
def reworded(by: Callable[[str], str]) -> Iterator[None]:
    """Errors name settings as the entry point does that was used, which `by` knows."""
    try:
        yield
    except ConfigError as error:
        error.args = (by(str(error)),)
        raise


def no_argument(
    function: str, key: str, known: Collection[str], what: str = "argument"
) -> ConfigError:
    """The error for a keyword that does not exist, with the nearest one that does."""
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.7) or [*known] * (len(known) == 1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(sorted(known))}"
    return ConfigError(f"{function} has no {what} {key!r}; {hint}")


def refuses_unknown(function: Callable[P, R]) -> Callable[P, R]:
    """The same function; a keyword that it does not have is refused with the nearest one.

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
