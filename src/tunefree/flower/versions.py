"""Which versions of Flower the resident node and `up` were tried with."""

from __future__ import annotations

import importlib
from importlib import metadata
from types import ModuleType

from tunefree.errors import ConfigError

TRIED = ((1, 41), (1, 42))
WAY_OUT = (
    "use Flower's own node instead (flower-supernode; `tunefree flower up --stock`), which runs "
    "the same app, or install a version that was tried: pip install 'flwr>=1.41,<1.43'"
)


def require() -> ModuleType:
    """What we use of Flower beyond its public names, once it is known to be there."""
    try:
        version = metadata.version("flwr")
    except metadata.PackageNotFoundError:
        raise ConfigError(
            "Flower is not installed; install it: pip install 'tunefree[flower]'"
        ) from None
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers not in TRIED:
        tried = " and ".join(".".join(map(str, each)) for each in TRIED)
        raise ConfigError(
            f"flwr = {version} has not been tried with tunefree's node, only {tried}; {WAY_OUT}"
        )
    try:
        return importlib.import_module("tunefree.flower.private")
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"flwr = {version} lacks what tunefree's node needs of it ({error}); {WAY_OUT}"
        ) from error
