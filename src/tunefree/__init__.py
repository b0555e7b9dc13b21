"""Federated learning without learning rates."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tunefree import methods, search, testing
    from tunefree.core import (
        OPEN,
        About,
        Exchange,
        Method,
        Oracle,
        Reply,
        Step,
        System,
        mean,
        norm,
        unit,
    )
    from tunefree.data import partition
    from tunefree.errors import ConfigError, FleetError, RecordError, TunefreeError, WireError
    from tunefree.privacy.promise import Privacy
    from tunefree.run.evaluate import spread
    from tunefree.run.files import load
    from tunefree.run.run import Run, resume, train
    from tunefree.search.own_clients import compare
    from tunefree.settings import Schedule
    from tunefree.testing.check import check_algorithm

    __version__: str

__all__ = [
    "OPEN",
    "About",
    "ConfigError",
    "Exchange",
    "FleetError",
    "Method",
    "Oracle",
    "Privacy",
    "RecordError",
    "Reply",
    "Run",
    "Schedule",
    "Step",
    "System",
    "TunefreeError",
    "WireError",
    "__version__",
    "check_algorithm",
    "compare",
    "load",
    "mean",
    "methods",
    "norm",
    "partition",
    "resume",
    "search",
    "spread",
    "testing",
    "train",
    "unit",
]

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
