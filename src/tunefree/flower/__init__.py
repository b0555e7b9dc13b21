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
    from tunefree.flower.strategy import PolarFL

__all__ = ["PolarFL", "client_app", "server_app"]

HOMES = {"client_app": "clientapp", "server_app": "serverapp", "PolarFL": "strategy"}


def __getattr__(name: str) -> object:
    if name in HOMES:
        return getattr(importlib.import_module(f"tunefree.flower.{HOMES[name]}"), name)
    raise AttributeError(f"module 'tunefree.flower' has no attribute {name!r}")
