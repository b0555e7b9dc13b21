"""What can go wrong, each said in one sentence that helps; the command line exits with its code."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TunefreeError(Exception):
    """Anything that tunefree says has gone wrong."""


class ConfigError(TunefreeError, ValueError):
    """A setting that cannot work: names the key, the value, what is allowed and what to do."""


class WireError(TunefreeError, ValueError):
    """A message that must not be used: names the client, the field and the reason."""


class FleetError(TunefreeError, RuntimeError):
    """A client's work that failed: names the client, the exchange and the step."""


class RecordError(TunefreeError, RuntimeError):
    """A run file that can no longer be written: says why, and how to go on."""


def unknown(key: str, value: str, allowed: Iterable[str], more: str = "") -> ConfigError:
    """The error for a name that does not exist, with the nearest one that does."""
    names = sorted(allowed)
    near = nearest(value, names)
    hint = f"did you mean {near!r}? " if near else ""
    choices = ", ".join([*names, *([f"or {more}"] if more else [])])
    return ConfigError(f"{key} = {value!r} is not known; {hint}choose from {choices}")


def nearest(name: str, allowed: Iterable[str]) -> str:
    """The one of these that was perhaps meant.

    >>> nearest("Etta", ["eta", "gamma"]), nearest("x", ["eta", "gamma"])
    ('eta', '')
    """
    small = {each.lower(): each for each in allowed}
    near = difflib.get_close_matches(name.lower(), small, n=1, cutoff=0.5)
    return small[near[0]] if near else ""
