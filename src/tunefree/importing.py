"""Importing what a user names: `package.module:name`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from tunefree.errors import ConfigError, failure_of


def import_name(setting: str, path: str) -> Any:
    """The object that `package.module:name` names; modules in the current folder count too."""
    module, _, name = path.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:  # the user's module may raise anything
        usual = isinstance(error, ImportError | AttributeError | ValueError)
        reason = error if usual else failure_of(error)
        raise ConfigError(
            f"could not be imported: {reason}",
            "write it as package.module:name and run where the package can be imported",
            setting=setting,
            value=path,
        ) from error
