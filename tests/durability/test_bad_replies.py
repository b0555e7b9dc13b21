"""Lost, late, duplicate or wrong replies harm no other client, and c stays the mean of c_i."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tunefree
from tests.lossy import lossy
from tunefree.core import Algorithm, OpeningUp, System, Vec, bind, mean
from tunefree.errors import WireError
from tunefree.fleet.job import Done, Job
from tunefree.fleet.serial import Serial
from tunefree.methods.adamasfl import AdaMasFL
from tunefree.methods.comparfrefl import ComParFreFL
from tunefree.methods.fedavg import FedAvg
from tunefree.methods.padamfed import PAdaMFed
from tunefree.methods.parfrefl import ParFreFL
from tunefree.methods.polarfl import PolarFL
from tunefree.methods.scaffold import Scaffold
from tunefree.record import Record
from tunefree.schedule.exchange import Absence
from tunefree.schedule.simulate import simulate as play
from tunefree.settings import Schedule
from tunefree.testing import QuadraticOracle, quadratic
from tunefree_evidence.baselines.mime import Mime

SYS = System(N=9, S=4, K=3, T=60)

METHODS: dict[str, tuple[Algorithm, Callable[[Any], Vec], Callable[[Any], Vec]]] = {
    "polarfl": (bind(PolarFL(), SYS), lambda s: s.c, lambda i: i.c_i),
    "padamfed": (bind(PAdaMFed(), SYS), lambda s: s.c, lambda i: i.c_i),
    "parfrefl": (bind(ParFreFL(), SYS), lambda s: s.c, lambda i: i.m_i),
    "comparfrefl": (bind(ComParFreFL(), SYS), lambda s: s.c, lambda i: i.c_i),
    "scaffold": (bind(Scaffold(eta=0.05), SYS), lambda s: s.c, lambda i: i.c_i),
    "adamasfl": (bind(AdaMasFL(), SYS), lambda s: s.c, lambda i: i.c_i),
}


@pytest.mark.parametrize("schedule", ["synchronous", "buffered"])
@pytest.mark.parametrize("name", METHODS)
def test_c_stays_the_mean_of_all_c_i(name: str, schedule: str) -> None:
    algo, c, c_i = METHODS[name]
    fleet, theta0 = lossy(algo, quadratic(N=SYS.N), 0.3, 0.2, 0.2)
    if schedule == "synchronous":
        steps = list(play(algo, fleet, theta0, 1))
    else:
        steps = list(play(algo, fleet, theta0, 1, Schedule("buffered", 7)))
    for step in steps:
        assert torch.isfinite(step.server.theta).all()
    expected = mean(c_i(fleet.states[client]) for client in range(SYS.N))
    torch.testing.assert_close(c(steps[-1].server), expected, rtol=1e-9, atol=1e-9)
    missing = sum(len(step.absent) for step in steps)
    assert missing > 0.2 * SYS.T * SYS.S
    assert len(fleet.accepted) == len(set(fleet.accepted)), "a reply was used twice"
    opening = SYS.N if algo.opening() else 0
    assert len(fleet.accepted) + missing == SYS.T * SYS.S + opening


def test_order_and_duplicates_change_nothing() -> None:
    algo, problem = bind(PAdaMFed(), SYS), quadratic(N=SYS.N)
    plain, theta0 = lossy(algo, problem, 0, 0, 0)
    mixed, _ = lossy(algo, problem, 0, 1, 0)
    for ours, theirs in zip(
        play(algo, mixed, theta0, 1), play(algo, plain, theta0, 1), strict=True
    ):
        assert torch.equal(ours.server.theta, theirs.server.theta)
        assert ours._replace(server=None) == theirs._replace(server=None)


def test_a_second_exchange_goes_to_those_who_answered_the_first() -> None:
    algo = bind(Mime(eta=0.05), SYS)
    fleet, theta0 = lossy(algo, quadratic(N=SYS.N), 0.3, 0, 0)
    steps = list(play(algo, fleet, theta0, 1))[1:]
    for step in steps:
        first, second = ([line for line in step.traffic if line.exchange == e] for e in (0, 1))
        answered = {line.direction: line.messages for line in first}
        asked = {line.direction: line.messages for line in second}
        assert asked.get("down", 0) == answered["up"]
        assert len(step.clients) == asked.get("up", 0)
    assert any(0 < len(step.clients) < SYS.S for step in steps)


def test_a_step_without_replies_changes_nothing() -> None:
    algo = bind(PAdaMFed(), SYS)
    fleet, theta0 = lossy(algo, quadratic(N=SYS.N), 1, 0, 0)
    for step in play(algo, fleet, theta0, 1):
        assert torch.equal(step.server.theta, theta0)
        assert step.clients == []
        assert {reason for _, _, reason in step.absent} == {"its reply did not come"}


class Rogue(Serial):
    """A fleet in which client 2 sends wrong replies."""

    forge: Callable[[Any], Any]

    def work(self, jobs: Sequence[Job]) -> list[Done]:
        return [
            done._replace(up=self.forge(done.up)) if done.key[0] == 2 and done.key[1] else done
            for done in super().work(jobs)
        ]


FORGERIES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "nan": (lambda up: up._replace(dc=up.dc * float("nan")), "`dc` is not finite"),
    "infinite": (lambda up: up._replace(delta=up.delta + float("inf")), "`delta` is not finite"),
    "short": (lambda up: up._replace(delta=up.delta[:-1]), "`delta` has length 4, not d = 5"),
    "scalar": (
        lambda up: up._replace(dc=torch.tensor(1.0, dtype=torch.float64)),
        "`dc` has length 1, not d = 5",
    ),
    "foreign": (lambda up: OpeningUp(up.dc), "a message 'OpeningUp' came instead of 'Up'"),
    "tuple": (tuple, "a message 'tuple' came instead of 'Up'"),
    "boosted": (
        lambda up: up._replace(delta=up.delta * 100 / up.delta.norm()),
        "`delta` has norm 100; the method gives at most 1",
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_bad_reply_is_refused_and_the_others_continue(name: str) -> None:
    algo, problem = bind(PAdaMFed(), SYS), quadratic(N=SYS.N)
    theta0 = torch.from_numpy(problem.theta0)
    fleet = Rogue(algo, theta0, lambda job: QuadraticOracle(problem, job))
    fleet.forge, reason = FORGERIES[name]
    before = mean([theta0])
    met = 0
    for step in play(algo, fleet, theta0, 1):
        if step.t < 0:
            first = fleet.states[2].c_i.clone()
            continue
        refused = tuple(a for a in step.absent)
        end = ", 3 times in a row: quarantined until readmitted" * (met == 2)
        assert refused in ((), (Absence(0, 2, reason + end),))
        assert len(step.clients) + len(refused) == SYS.S
        assert 2 not in step.clients
        assert not torch.equal(step.server.theta, before)
        before = step.server.theta
        met += len(refused)
    assert met == 3
    assert torch.equal(fleet.states[2].c_i, first)  # nothing of it was ever accepted
    expected = mean(fleet.states[client].c_i for client in range(SYS.N))
    torch.testing.assert_close(step.server.c, expected, rtol=1e-9, atol=1e-9)


def clients() -> list[tuple[Vec, Vec]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(12, 4, generator=generator), torch.full((12,), float(i))) for i in range(6)
    ]


def broken(outputs: Vec) -> Vec:
    """Zero, with a gradient that is NaN."""
    return (0 * outputs).abs().sqrt().sum()


def sour(outputs: Vec, y: Vec) -> Vec:
    """A loss that the sixth client cannot differentiate."""
    loss = nn.functional.mse_loss(outputs[:, 0], y)
    return loss + broken(outputs) if y[0] == 5 else loss


@pytest.mark.filterwarnings("ignore:the formula gives beta ")
def test_a_run_lists_refused_replies_and_skips_a_step_without_any(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.sqlite"
    tunefree.train(
        nn.Linear(4, 1),
        clients(),
        algorithm="padamfed",
        loss=sour,
        rounds=9,
        per_round=1,
        local_steps=2,
        out=path,
    )
    record, err = Record.open(path), capsys.readouterr().err
    (opening, *rest) = record.absences()
    assert opening == (-1, 0, 5, "`grad` is not finite")
    skipped = [int(row["t"]) for row in record.history() if row["t"] >= 0 and not row["clients"]]
    assert skipped
    assert rest == [(t, 0, 5, "`delta` is not finite") for t in skipped]
    assert "opening: 1 replies were missing or refused\n" in err
    for t in skipped:
        assert f"round {t + 1}: 1 replies were missing or refused; the round is skipped" in err


def test_silence_ends_a_run_after_three_steps(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    words = "no reply could be used for 3 steps in a row, .* at t = 2: `delta` is not finite"
    with pytest.raises(WireError, match=words):
        tunefree.train(
            nn.Linear(4, 1),
            clients(),
            algorithm=lambda sys: FedAvg(eta=0.1),
            loss=lambda outputs, y: broken(outputs),
            rounds=9,
            progress=False,
            out=path,
        )
    assert Record.open(path).last() == (1, 0)
