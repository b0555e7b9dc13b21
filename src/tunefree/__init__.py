"""Federated learning without learning rates."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tunefree import methods as methods
    from tunefree import search as search
    from tunefree import testing as testing
    from tunefree.core import OPEN as OPEN
    from tunefree.core import About as About
    from tunefree.core import Exchange as Exchange
    from tunefree.core import Method as Method
    from tunefree.core import Oracle as Oracle
    from tunefree.core import Reply as Reply
    from tunefree.core import Step as Step
    from tunefree.core import System as System
    from tunefree.core import mean as mean
    from tunefree.core import norm as norm
    from tunefree.core import unit as unit
    from tunefree.data import partition as partition
    from tunefree.errors import ConfigError as ConfigError
    from tunefree.errors import FleetError as FleetError
    from tunefree.errors import RecordError as RecordError
    from tunefree.errors import TunefreeError as TunefreeError
    from tunefree.errors import WireError as WireError
    from tunefree.privacy.promise import Privacy as Privacy
    from tunefree.run.evaluate import spread as spread
    from tunefree.run.files import load as load
    from tunefree.run.run import Run as Run
    from tunefree.run.run import resume as resume
    from tunefree.run.run import train as train
    from tunefree.search.own_clients import compare as compare
    from tunefree.settings import Schedule as Schedule
    from tunefree.testing.check import check_algorithm as check_algorithm

    __version__: str

PACKAGES = {
    "methods": "tunefree.methods",
    "partition": "tunefree.data.partition",
    "search": "tunefree.search",
    "testing": "tunefree.testing",
}
HOMES = {
    "tunefree.core": "OPEN About Exchange Method Oracle Reply Step System mean norm unit",
    "tunefree.errors": "ConfigError FleetError RecordError TunefreeError WireError",
    "tunefree.privacy.promise": "Privacy",
    "tunefree.run.evaluate": "spread",
    "tunefree.run.files": "load",
    "tunefree.run.run": "Run resume train",
    "tunefree.search.own_clients": "compare",
    "tunefree.settings": "Schedule",
    "tunefree.testing.check": "check_algorithm",
}
__all__ = sorted(["__version__", *PACKAGES, *" ".join(HOMES.values()).split()])


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> object:
        """Import torch only when a name that needs it is used."""
        if name == "__version__":
            return importlib.import_module("importlib.metadata").version("tunefree")
        if name in PACKAGES:
            return importlib.import_module(PACKAGES[name])
        for home, names in HOMES.items():
            if name in names.split():
                return getattr(importlib.import_module(home), name)
        raise AttributeError(f"module 'tunefree' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
