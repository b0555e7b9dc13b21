"""A run goes back to a checkpoint as it was then, and leaves out what a client has sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunefree.cli import main
from tunefree.errors import ConfigError
from tunefree.record import Record
from tunefree.run.run import Run, prepare, resume_command
from tunefree.settings import load

TINY = {"clients": 8, "per_round": 4, "local_steps": 2, "rounds": 30, "model": "logistic"}
KINDS: dict[str, dict[str, Any]] = {
    "polarfl": {},
    "with an opening": {"algorithm": "padamfed"},
    "buffered": {"schedule": "buffered", "concurrency": 6},
    "robust": {"robust": "median"},
    "averaged": {"algorithm": "scaffold", "option.eta": 0.1, "average": "on"},
}


def start(path: Path, **more: Any) -> Run:
    keys = {"out": str(path), "fleet": "serial", "eval_every": 30, "partition": "iid"}
    return prepare(load(None, {**keys, "commit_every": 1, **TINY, **more}))


def whole(run: Run) -> str:
    for _ in run:
        pass
    return run.theta_sha256


@pytest.mark.parametrize("kind", KINDS)
def test_from_a_checkpoint_the_run_is_as_it_was(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    sha = whole(start(path, **KINDS[kind]))
    there = [1, 2, 4, 8, 16, *range(21, 31)]
    assert [t + 1 for t in Record.open(path).checkpoints()] == there
    for rounds in (24, 8, 1):
        run = resume_command(path, fleet="serial", from_round=rounds)
        assert run.history[-1]["round"] == rounds
        assert run.record.absences() == []
        assert whole(run) == sha
        assert [t + 1 for t in Record.open(path).checkpoints()] == there


def test_versions_that_no_checkpoint_needs_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    whole(start(path))
    record = Record.open(path)
    rows = "SELECT owner, field, t FROM vector ORDER BY owner, field, t"
    versions: dict[tuple[int, str], list[int]] = {}
    for owner, name, t in record.connection.execute(rows):
        versions.setdefault((owner, name), []).append(t)
    needed = record.checkpoints()
    for times in versions.values():
        for t, later in zip(times, [*times[1:], 1000], strict=True):
            assert any(t <= step < later for step in needed)


def test_large_states_have_fewer_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunefree.record.file.ROOM", 60_000)
    whole(start(tmp_path / "a.sqlite"))
    assert len(Record.open(tmp_path / "a.sqlite").checkpoints()) < 5


def test_without_a_client_its_share_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    whole(start(path, rounds=20))
    run = resume_command(path, fleet="serial", from_round=16, without=[3])
    c_i = [Record.open(path).vectors(client)["c_i"] for client in range(8)]
    assert not c_i[3].any()
    np.testing.assert_allclose(run.record.vectors()["c"], np.mean(c_i, axis=0), atol=1e-6)
    before = run.record.uploads()[3]
    whole(run)
    record = Record.open(path)
    assert record.uploads()[3] == before
    assert record.left_out() == [3]
    c_i = [record.vectors(client)["c_i"] for client in range(8)]
    np.testing.assert_allclose(record.vectors()["c"], np.mean(c_i, axis=0), atol=1e-6)
    assert float(record.vectors()["known"]) == pytest.approx(7 / 8)


def test_the_command_goes_back_and_says_who_is_left_out(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "a.sqlite"
    whole(start(path, rounds=12))
    words = ["run", "--resume", str(path), "--fleet", "serial"]
    assert main([*words, "--from-round", "8", "--without", "3", "5"]) == 0
    out = capsys.readouterr().out
    assert "resumes after round 8" in out
    assert "left out: client 3 5" in out
    assert main([*words, "--from-round", "40"]) == 2
    assert "it can go back to the end of round 1, 2, 3, 4, 5, 6" in capsys.readouterr().err
    assert main([*words, "--without", "9"]) == 2
    assert "there are 0, 1, 2, 3, 4, ..., 7" in capsys.readouterr().err
    assert main(["run", "--from-round", "7"]) == 2


def test_a_private_run_cannot_go_back(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    more = {"algorithm": "polarfl_stateless", "epsilon": 8.0, "clients": 20, "per_round": 5}
    whole(start(path, **more))
    with pytest.raises(ConfigError, match="a private run cannot go back"):
        resume_command(path, fleet="serial", from_round=8)
    assert Record.open(path).last() == (29, 0.0)
