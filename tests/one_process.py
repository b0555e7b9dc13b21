"""Batches of runs without worker processes, each of which takes seconds to import torch."""

from __future__ import annotations

import pytest


def in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do runs one after the other in this process, as where processes cannot inherit files."""
    monkeypatch.setattr("tunefree.search.batch.lacking", lambda: "in one process")
