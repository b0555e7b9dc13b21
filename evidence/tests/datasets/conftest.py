"""Every test has its own cache and sees no folder, package or network of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunefree_evidence.datasets import fetch


@pytest.fixture(autouse=True)
def own_cache(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if request.node.get_closest_marker("slow"):
        return
    monkeypatch.setenv("TUNEFREE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TUNEFREE_DATA", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(fetch, "download", lambda file, folder: "no network in tests")
