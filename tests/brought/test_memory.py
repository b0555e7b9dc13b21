"""Memory has a limit: for states that are not on disk yet, and for files that are mapped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tunefree
from tunefree.data import clients as of_clients
from tunefree.data.clients import federation_from
from tunefree.data.lazy import Mapped
from tunefree.errors import ConfigError
from tunefree.fleet import states

RNG = torch.Generator().manual_seed(0)
CLIENTS = [(torch.randn(8, 5, generator=RNG), torch.randint(4, (8,))) for _ in range(12)]
SETTINGS: dict[str, Any] = {"rounds": 6, "local_steps": 1, "progress": False, "fleet": "serial"}


def train(**more: Any) -> Any:
    torch.manual_seed(0)
    return tunefree.train(nn.Linear(5, 4), CLIENTS, **SETTINGS, **more)


def test_states_are_written_before_they_fill_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, kept = [], []
    written = states.States.written

    def noted(self: states.States) -> None:
        sizes.append(len(self._new))
        written(self)
        kept.append(len(self._recent))

    monkeypatch.setattr(states.States, "written", noted)
    usual = train(per_round=3, commit_every=100, out=tmp_path / "a.sqlite")
    assert sizes == [0, 9]  # at the start and at the end
    sizes.clear()
    kept.clear()
    monkeypatch.setattr(states.States.__init__, "__defaults__", (None, 16 * 24 * 4))
    limited = train(per_round=3, commit_every=100, out=tmp_path / "b.sqlite")
    assert len(sizes) > 1
    assert max(sizes) <= 4 + 3  # more than four, and those of one round
    assert max(kept) == 8
    assert limited.theta_sha256 == usual.theta_sha256 == train(per_round=3).theta_sha256


def mapped(folder: Path, i: int, dtype: Any = np.float32) -> Any:
    path = folder / f"{i}.npy"
    np.save(path, CLIENTS[i][0].numpy().astype(dtype))
    return np.load(path, mmap_mode="r"), CLIENTS[i][1].numpy()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_mapped_arrays_beyond_the_limit_are_read_when_drawn(
    dtype: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_clients, "IN_MEMORY", 2 * 8 * 5 * 4)  # two clients
    data = [mapped(tmp_path, i, dtype) for i in range(12)]
    federation = federation_from(data)
    sources: Any = federation.train.x
    assert [type(source) for source in sources[-10:]] == [Mapped] * 10
    assert sources[-1].x is data[-1][0]
    SETTINGS_POOL = SETTINGS | {"fleet": "pool", "workers": 1}
    shas = set()
    for each, settings in ((CLIENTS, SETTINGS), (data, SETTINGS), (data, SETTINGS_POOL)):
        torch.manual_seed(0)
        shas.add(tunefree.train(nn.Linear(5, 4), each, **settings).theta_sha256)
    assert len(shas) == 1


def test_a_mapped_file_with_nan_is_refused_when_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_clients, "IN_MEMORY", 0)
    x, y = mapped(tmp_path, 0)
    bad = np.array(x)
    bad[5] = np.nan
    np.save(tmp_path / "bad.npy", bad)
    federation = federation_from([(np.load(tmp_path / "bad.npy", mmap_mode="r"), y)])
    with pytest.raises(ConfigError, match="client 0, sample 5 has a non-finite input"):
        federation.train.batch(slice(0, 8))
