"""The versions of Flower that our node and `up` were tested with."""

from __future__ import annotations

import importlib
from importlib import metadata
from types import ModuleType

from tunefree.errors import ConfigError

TESTED = ((1, 41), (1, 42))
INSTEAD = (
    "use Flower's own node instead (flower-supernode; `tunefree flower up --stock`), which runs "
    "the same app, or install a tested version: pip install 'flwr>=1.41,<1.43'"
)


def require() -> ModuleType:
    """The module `private`, if a version of Flower that it works with is installed."""
    try:
        version = metadata.version("flwr")
    except metadata.PackageNotFoundError:
        raise ConfigError(
            "Flower is not installed; install it: pip install 'tunefree[flower]'"
        ) from None
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers not in TESTED:
        tested = " and ".join(".".join(map(str, each)) for each in TESTED)
        raise ConfigError(
            f"flwr = {version} was not tested with tunefree's node, only {tested}; {INSTEAD}"
        )
    try:
        return importlib.import_module("tunefree.node.private")
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"flwr = {version} lacks what tunefree's node needs ({error}); {INSTEAD}"
        ) from error
