"""Deployed federations: our schedules in a Flower ServerApp, our clients' work in a ClientApp.

On Flower's own nodes every message starts a new process, so nothing heavy is imported before it is
needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tunefree.flower.clientapp import client_app
    from tunefree.flower.serverapp import server_app

__all__ = ["client_app", "server_app"]


def __getattr__(name: str) -> object:
    homes = {"client_app": "tunefree.flower.clientapp", "server_app": "tunefree.flower.serverapp"}
    if name in homes:
        return getattr(importlib.import_module(homes[name]), name)
    raise AttributeError(f"module 'tunefree.flower' has no attribute {name!r}")
