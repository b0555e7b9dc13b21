"""An upload far larger than is usual is refused; its client is quarantined after three in a row."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from tunefree.cli import main
from tunefree.core import System, Vec, bind, stream
from tunefree.errors import ConfigError, WireError
from tunefree.fleet.job import Done, Job
from tunefree.methods import FedAvg, PAdaMFed
from tunefree.record import GAUGE, Record
from tunefree.run.run import Run, prepare, resume_command
from tunefree.schedule.gauge import Gauge, lengths
from tunefree.settings import Settings, load
from tunefree.wire import from_spec

ALGO = bind(FedAvg(eta=0.1), System(N=9, S=4, K=3, T=60), ((2, 2), (3,)))


class Up(NamedTuple):
    delta: Vec


def came(*vectors: Vec, t: int = 0, first: int = 0) -> list[tuple[Job, Done]]:
    jobs = [Job(first + i, t, "round", 0, None) for i in range(len(vectors))]
    return [(job, Done(job.key, Up(v), 1, 1)) for job, v in zip(jobs, vectors, strict=True)]


def judged(gauge: Gauge, *scales: float, t: int = 0, first: int = 0) -> dict[int, str]:
    return gauge.judge(ALGO, came(*(s * torch.ones(7) for s in scales), t=t, first=first))


def used(rounds: int = 5) -> Gauge:
    gauge = Gauge()
    for t in range(rounds):
        assert judged(gauge, 1.0, 2.0, 3.0, 1.5, t=t) == {}
    return gauge


def test_a_jump_is_refused_and_named() -> None:
    gauge = used()
    before = gauge.vectors["round 0 delta"]
    assert judged(gauge, 1.0, 1e30, t=5) == {1: "its `delta` is 10^29 times as large as is usual"}
    assert len(gauge.vectors["round 0 delta"]) == len(before) + 1  # the bad one is not remembered


def test_one_that_is_ten_times_as_large_is_not() -> None:
    assert judged(used(), 1.0, -10.0, t=5) == {}


def test_the_first_uploads_are_judged_among_themselves() -> None:
    assert list(judged(Gauge(), 1.0, 1e6, 2.0)) == [1]
    assert judged(Gauge(), 1.0, 1e6) == {}


def test_a_norm_that_grows_slowly_is_followed() -> None:
    gauge = Gauge()
    for t in range(200):
        assert judged(gauge, *[1.1**t] * 5, t=t) == {}


def test_what_grows_at_all_clients_is_the_method() -> None:
    assert judged(used(), *[1e4] * 4, t=5) == {}
    assert list(judged(used(), *[1e4] * 2, 1.0, 1.0, t=5)) == [0, 1]


def test_norms_of_zero_say_nothing() -> None:
    gauge = Gauge()
    for t in range(20):
        assert judged(gauge, 0.0, 0.0, 0.0, t=t) == {}
    assert judged(gauge, 1.0, 2.0, 1.0, t=20) == {}


def test_each_tensor_is_judged() -> None:
    gauge, small = Gauge(), torch.tensor([1e4] * 4 + [1.0] * 3)
    for t in range(5):
        assert gauge.judge(ALGO, came(small, small, small, t=t)) == {}
    large = small.clone()
    large[4:] = 900.0  # the whole is hardly longer
    assert list(gauge.judge(ALGO, came(small, large, small, t=5))) == [1]


def test_a_bounded_field_is_left_to_its_bound() -> None:
    algo = bind(PAdaMFed(), ALGO.sys, ALGO.shapes)
    gauge = Gauge()
    gauge.judge(algo, came(torch.ones(7), torch.ones(7), torch.ones(7)))
    assert gauge.vectors == {}


def test_three_in_a_row_are_a_quarantine() -> None:
    gauge = used()
    assert list(judged(gauge, 1.0, 1e6, t=5)) == [1]
    assert judged(gauge, 1.0, 1.0, t=6) == {}  # a good one in between
    for t in (7, 8):
        judged(gauge, 1.0, 1e6, t=t)
        assert gauge.out(t + 1) == set()
    assert "quarantined until readmitted" in judged(gauge, 1.0, 1e6, t=9)[1]
    assert (gauge.out(9), gauge.out(10)) == (set(), {1})


@pytest.mark.parametrize(
    "spec", ["sign", "rotated:2", "top:0.3", "rand:0.3", "qsgd:4", "any:sign|top:0.4@whole"]
)
def test_the_norms_of_compressed_tensors_are_known_without_building_them(spec: str) -> None:
    sizes = [12, 5]
    C: Any = from_spec(spec).over(sizes)
    sent = C(torch.from_numpy(stream(0, "v").normal(size=17)), stream(1, "C"))
    dense = torch.split(sent.dense(), sizes)
    expected = [*(float(u.norm()) for u in dense), float(sent.dense().norm())]
    np.testing.assert_allclose(lengths(sent, ((3, 4), (5,))), expected, rtol=2e-3)


def test_norms_whose_squares_overflow() -> None:
    assert lengths(torch.full((4,), 1e30), ((4,),)) == pytest.approx([2e30, 2e30])


TINY = {"clients": 8, "per_round": 4, "local_steps": 2, "rounds": 30, "model": "logistic"}
ATTACK = "scaled:1000000:1"
SCHEDULES: dict[str, dict[str, Any]] = {
    "synchronous": {},
    "delayed": {"delays": "mild"},
    "buffered": {"schedule": "buffered", "concurrency": 6},
}


def settings(path: Path, **more: Any) -> Settings:
    keys = {"out": str(path), "fleet": "serial", "eval_every": 30, "partition": "iid"}
    return load(None, {**keys, **TINY, "attack": ATTACK, **more})


def take(run: Run, rows: int = 1000) -> None:
    steps = iter(run)
    for _ in islice(steps, rows):
        pass
    steps.close()


def quarantine_of(path: Path) -> tuple[int, int]:
    """Who is in quarantine, and after which step."""
    ((client, after, until),) = Record.open(path).vectors(GAUGE)["quarantine"].tolist()
    assert until == -1
    return client, after


def lines(path: Path) -> list[Any]:
    rows = Record.open(path).history()
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_an_attacker_is_quarantined_also_if_the_run_is_resumed(
    schedule: str, tmp_path: Path
) -> None:
    whole, path = tmp_path / "whole.sqlite", tmp_path / "a.sqlite"
    run = prepare(settings(whole, **SCHEDULES[schedule]))
    take(run)
    client, after = quarantine_of(whole)
    refused = [each for each in Record.open(whole).absences() if "quarantine" not in each[3]]
    assert [who for _, _, who, _ in refused] == [client] * 2
    take(prepare(settings(path, **SCHEDULES[schedule])), refused[-1][0] + 1)  # between strikes
    take(resume_command(path, fleet="serial"), after - refused[-1][0] + 3)  # in the quarantine
    assert quarantine_of(path) == (client, after)
    again = resume_command(path, fleet="serial")
    take(again)
    assert again.theta_sha256 == run.theta_sha256
    assert lines(path) == lines(whole)
    for t, _, who, why in Record.open(whole).absences():
        assert who == client
        assert t <= after or (schedule == "buffered" and why == "it is in quarantine")


def test_a_client_is_readmitted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.sqlite"
    take(prepare(settings(path)))
    client, after = quarantine_of(path)
    refusals = len(Record.open(path).absences())
    assert refusals == 3
    capsys.readouterr()
    assert main(["show", str(path)]) == 0
    assert f"client {client}; to ask again: tunefree run --resume {path} --readmit CLIENT" in (
        capsys.readouterr().out
    )
    words = ["run", "--resume", str(path), "--fleet", "serial"]
    assert main([*words, "--readmit", str(client + 1)]) == 2
    assert f"in quarantine now: {client}" in capsys.readouterr().err
    assert main([*words, "--rounds", "50", "--readmit", str(client)]) == 0
    rows = Record.open(path).vectors(GAUGE)["quarantine"].tolist()
    assert rows[0] == [client, after, 29]
    assert len(Record.open(path).absences()) > refusals  # it attacks again, and is refused again
    assert main(["run", "--readmit", "3"]) == 2


def test_a_run_whose_clients_are_all_in_quarantine_ends_with_that_reason(tmp_path: Path) -> None:
    run = prepare(settings(tmp_path / "a.sqlite", attack=""))
    take(run, 5)
    everyone = np.array([(client, 2, -1) for client in range(8)])
    run.record.acquire()
    run.record.replace(GAUGE, {"quarantine": everyone})
    with pytest.raises(WireError, match="all clients are in quarantine"):
        take(run)


def test_only_who_is_in_quarantine_can_be_readmitted(tmp_path: Path) -> None:
    run = prepare(settings(tmp_path / "a.sqlite"))
    with pytest.raises(ConfigError, match="client 3 is not in quarantine; in quarantine now: nobo"):
        run.readmit([3])


def test_a_first_upload_alone_does_not_decide_what_is_usual() -> None:
    gauge = Gauge()
    for t, scale in enumerate([1e30, 1.0, 1.0, 2.0]):
        assert judged(gauge, scale, t=t) == {}
    assert list(judged(gauge, 1e6, t=4)) == [0]
