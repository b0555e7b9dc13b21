"""Federated learning without learning rates."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tunefree.api import resume, train
    from tunefree.config import Schedule
    from tunefree.conformance.check import check_algorithm
    from tunefree.core import System
    from tunefree.data import partition

__all__ = ["Schedule", "System", "check_algorithm", "partition", "resume", "train"]


def __getattr__(name: str) -> object:
    """Import torch only when something is asked for that needs it."""
    homes = {
        "Schedule": "tunefree.config",
        "System": "tunefree.core",
        "check_algorithm": "tunefree.conformance.check",
        "resume": "tunefree.api",
        "train": "tunefree.api",
    }
    if name == "partition":
        return importlib.import_module("tunefree.data.partition")
    if name in homes:
        return getattr(importlib.import_module(homes[name]), name)
    raise AttributeError(f"module 'tunefree' has no attribute {name!r}")
