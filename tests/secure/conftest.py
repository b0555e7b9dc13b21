"""Nodes' files are not forced to the disk in tests, which would take minutes."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def quick_files(monkeypatch: pytest.MonkeyPatch) -> None:
    node = pytest.importorskip("tunefree.secure.node")
    assert "synchronous = EXTRA" in node.SCHEMA
    monkeypatch.setattr(node, "SCHEMA", node.SCHEMA.replace("= EXTRA", "= OFF"))
