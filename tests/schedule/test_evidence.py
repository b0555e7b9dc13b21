"""Each client's length and agreement are known, outliers are named; not under privacy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tunefree.cli import main
from tunefree.core import System, stream
from tunefree.fleet.attack import from_spec as attack_of
from tunefree.fleet.job import Done, Job
from tunefree.methods.registry import build
from tunefree.record import GAUGE, Record
from tunefree.run.run import prepare
from tunefree.schedule.evidence import ROWS, SUMS, forgotten, noted
from tunefree.settings import load
from tunefree.wire import from_spec

SYS = System(N=6, S=6, K=2, T=20)
TINY = {"clients": 10, "local_steps": 5, "rounds": 25, "model": "logistic", "partition": "iid"}


def came(name: str, vectors: Any, t: int = 0) -> list[tuple[Job, Done]]:
    Up = build(name, SYS).round()[0].Up
    more = (1.0,) * (len(Up._fields) - 1)
    jobs = [Job(i, t, "round", 0, None) for i in range(len(vectors))]
    ups = [Up(v if not isinstance(v, np.ndarray) else torch.from_numpy(v), *more) for v in vectors]
    return [(job, Done(job.key, up, 1, 1)) for job, up in zip(jobs, ups, strict=True)]


def test_angles_and_lengths_are_those_of_the_vectors() -> None:
    common = stream(0, "common").normal(size=5000)
    v = np.stack([common + stream(i, "own").normal(size=5000) for i in range(6)])
    v[4], v[5] = -v[4], 7 * v[5]
    (rows,) = noted({}, build("fedavgm", SYS), came("fedavgm", v)).values()
    directions = v / np.linalg.norm(v, axis=1, keepdims=True)
    others = directions.sum(axis=0) - directions
    cosines = (directions * others).sum(axis=1) / np.linalg.norm(others, axis=1)
    np.testing.assert_allclose(rows[:, 1], cosines, atol=0.12)
    assert rows[:, 2].tolist() == [0, 0, 0, 0, 1, 0]
    assert np.exp(rows[5, 3]) == pytest.approx(7, rel=0.15)


def test_increments_are_added_up_until_a_client_has_lost_its_state() -> None:
    algo, gauge = build("polarfl", SYS), dict[str, Any]()
    v = stream(0, "v").normal(size=(6, 5000))
    for t in range(3):
        gauge = noted(gauge, algo, came("polarfl", v, t))
    np.testing.assert_allclose(np.linalg.norm(gauge[SUMS][2]), 3 * np.linalg.norm(v[2]), rtol=0.15)
    assert not forgotten(gauge, 2)[SUMS][2].any()
    assert gauge[ROWS][:, 0].tolist() == [3] * 6


def test_compressed_uploads_are_compared() -> None:
    C: Any = from_spec("sign").over([5000])
    v = stream(0, "v").normal(size=(4, 5000))
    sent = [C(torch.from_numpy(each), stream(1, "C")) for each in (v[0], v[0], v[0], -v[0])]
    rows = noted({}, build("polarfl", SYS), came("polarfl", sent))[ROWS]
    np.testing.assert_allclose(rows[:, 1], [1 / 1, 1, 1, -1], atol=1e-6)


def run(path: Path, **more: Any) -> Record:
    keys = {"out": str(path), "fleet": "serial", "eval_every": 25, **TINY, **more}
    for _ in prepare(load(None, keys)):
        pass
    return Record.open(path)


@pytest.mark.parametrize("name", ["polarfl", "polarfl_stateless"])
def test_an_attacker_of_usual_size_is_named(name: str, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "a.sqlite"
    attack = attack_of("sign-flip:1", 10, 0)
    assert attack is not None
    (bad,) = attack.clients
    words = [f"--{key.replace('_', '-')}={value}" for key, value in TINY.items()]
    words += ["--algorithm", name, "--attack", "sign-flip:1", "--fleet", "serial"]
    assert main(["run", "--out", str(path), *words]) == 0
    said = f"client {bad} stands apart: 100 % of its uploads point away from the others"
    out, err = capsys.readouterr()
    assert said in out
    assert " ".join(err.split()).count(said) == 1  # in the log, once
    summary = Record.open(path).summary()
    assert list(summary.outliers) == [bad]
    assert [each.uploads for each in summary.clients] == [25] * 10
    assert main(["show", str(path), "--clients"]) == 0
    assert "length  agreement  against" in capsys.readouterr().out


def test_nobody_is_named_among_honest_clients(tmp_path: Path) -> None:
    for partition in ("iid", "dirichlet:0.1", "shards:1"):
        record = run(tmp_path / f"{partition[:3]}.sqlite", partition=partition)
        assert record.summary().outliers == {}
        assert record.clients()[0].compared == 25


def test_nothing_is_compared_under_privacy(tmp_path: Path) -> None:
    more = {"algorithm": "polarfl_stateless", "epsilon": 8.0, "clients": 20, "per_round": 5}
    record = run(tmp_path / "a.sqlite", **more)
    assert record.vectors(GAUGE) == {}
    assert {each.compared for each in record.clients()} == {0}
