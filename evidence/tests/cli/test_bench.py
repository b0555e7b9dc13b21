"""`tunefree-evidence bench` runs at toy size; its measurements are not tested."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tunefree_evidence.cli import main
from tunefree_evidence.speed.workloads import WORKLOADS, federation, workload


@pytest.fixture
def one_core() -> Iterator[None]:
    """One worker in every pool, here and in all processes: each imports torch."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


@pytest.mark.usefixtures("one_core")
def test_a_toy_bench_writes_numbers_and_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["bench", "B", "--toy", "--rounds", "1", "--turns", "1", "--out", str(tmp_path)]
    assert main(argv) == 0
    assert "tunefree pool" in capsys.readouterr().out
    result = json.loads((tmp_path / "bench-B.json").read_text())
    names = [row["name"].split()[0] for row in result["contestants"]]
    assert names == ["bare"] * 2 + ["tunefree"] * 4
    assert result["polar"] > 0
    assert result["opening"]["peak"] > 100
    assert sum(result["shares"].values()) == pytest.approx(1)
    assert (tmp_path / "bench-B.png").read_bytes().startswith(b"\x89PNG")


def test_a_toy_scaling(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "E", "--toy", "--rounds", "1", "--turns", "1", "--format", "json"]) == 0
    assert [row["N"] for row in json.loads(capsys.readouterr().out)] == [100, 1000]


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_have_the_samples_they_declare(name: str) -> None:
    w = workload(name, toy=True)
    data = federation(w)
    assert data.parts.sizes.tolist() == [w.samples] * w.N
    x, y = data.train.batch(data.parts[1])
    assert len(x) == len(y) == w.samples
    assert int(y.max()) < w.classes


def test_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "F"]) == 2
    assert "workload = 'F' is not known" in capsys.readouterr().err
    assert main(["bench", "A", "--turns", "0"]) == 2
    assert "must be at least 1" in capsys.readouterr().err
    assert main(["bench", "A", "--toy", "--out", __file__]) == 2
    assert (
        f"--out '{__file__}' cannot be written ('{__file__}' is a file)" in capsys.readouterr().err
    )
