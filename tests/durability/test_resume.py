"""A run that was stopped anywhere resumes, bit-identical to one that never stopped."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tunefree
from tests.variants import METHODS
from tunefree.cli import main
from tunefree.core import System, Vec
from tunefree.errors import ConfigError
from tunefree.fleet import choice
from tunefree.fleet.job import Fleet
from tunefree.methods import PAdaMFed, Scaffold
from tunefree.methods.registry import build
from tunefree.record import Record
from tunefree.run.run import Run, prepare, resume_command
from tunefree.settings import Settings, load

TINY = {"clients": 8, "per_round": 3, "local_steps": 2, "rounds": 7, "model": "logistic"}
BUFFERED = {"schedule": "buffered", "concurrency": 6, "dropout": 0.2}
ONE_TRIP = [name for name in METHODS if len(build(name, System(N=8, S=3, K=2, T=7)).round()) == 1]
pytestmark = pytest.mark.filterwarnings("ignore:the formula gives beta ")


def settings(path: Path, **more: Any) -> Settings:
    keys = {"out": str(path), "fleet": "serial", "eval_every": 3} | TINY
    return load(None, keys | {key.replace("__", "."): v for key, v in more.items()})


def everyone(name: str) -> dict[str, Any]:
    """Local SGD-C works only if all clients take part."""
    return {"per_round": 8} if name == "local_sgd_c" else {}


def whole(run: Run) -> str:
    for _ in run:
        pass
    return run.theta_sha256


def stop(run: Run, rows: int) -> None:
    """Take this many rows and leave the loop."""
    steps = iter(run)
    for _ in islice(steps, rows):
        pass
    steps.close()


def scores(path: Path) -> list[dict[str, float]]:
    rows = Record.open(path).history()
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def same_end(tmp_path: Path, stops: list[int], **more: Any) -> None:
    expected = whole(prepare(settings(tmp_path / "whole.sqlite", **more)))
    path = tmp_path / "stopped.sqlite"
    stop(prepare(settings(path, **more)), stops[0])
    for rows in stops[1:]:
        assert Record.open(path).state == "interrupted"
        stop(resume_command(path, fleet="serial"), rows)
    assert whole(resume_command(path, fleet="serial")) == expected
    assert scores(path) == scores(tmp_path / "whole.sqlite")
    assert Record.open(path).state == "done"
    for client in range(8):
        ours, theirs = (
            Record.open(tmp_path / name).vectors(client) for name in (path.name, "whole.sqlite")
        )
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[field], theirs[field]) for field in theirs)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_resumes(name: str, tmp_path: Path) -> None:
    same_end(tmp_path, [3, 2], algorithm=name, **everyone(name))


@pytest.mark.parametrize("name", ONE_TRIP)
def test_every_buffered_method_resumes(name: str, tmp_path: Path) -> None:
    more = {key.replace(".", "__"): value for key, value in BUFFERED.items()}
    if name == "local_sgd_c":
        pytest.skip("needs every client at every step")
    same_end(tmp_path, [4, 1], algorithm=name, **more)


@pytest.mark.parametrize("name", ["fedavgm", "polarfl_stateless", "padamfed", "scaffold"])
def test_an_averaged_method_resumes(name: str, tmp_path: Path) -> None:
    same_end(tmp_path, [3, 2], algorithm=name, average="on", **everyone(name))


@pytest.mark.parametrize("rows", [0, 1, 7, 8])
def test_before_the_opening_and_after_the_end(rows: int, tmp_path: Path) -> None:
    same_end(tmp_path, [rows])


@pytest.mark.parametrize("dispatch", ["immediate", "queue"])
def test_other_dispatch_and_delays(dispatch: str, tmp_path: Path) -> None:
    more = {key.replace(".", "__"): value for key, value in BUFFERED.items()}
    same_end(tmp_path, [3, 3], **more, dispatch=dispatch, delays="large")


def test_the_virtual_clock_of_synchronous_rounds_resumes(tmp_path: Path) -> None:
    same_end(tmp_path, [4], delays="mild")


def test_the_pool_resumes_where_serial_stopped(tmp_path: Path) -> None:
    expected = whole(prepare(settings(tmp_path / "whole.sqlite")))
    path = tmp_path / "stopped.sqlite"
    stop(prepare(settings(path)), 3)
    stop(resume_command(path, fleet="pool", workers=2), 2)
    assert whole(resume_command(path, fleet="serial")) == expected


def test_fewer_commits_lose_no_whole_step_when_stopped(tmp_path: Path) -> None:
    same_end(tmp_path, [3, 2], commit_every=4)


def test_commits_come_as_often_as_asked(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    run = prepare(settings(path, commit_every=3))
    kept = []
    for _ in run:
        run.record.settle()
        last = Record.open(path).last()
        kept.append(last[0] if last else None)
    assert kept == [-1, -1, -1, 2, 2, 2, 5, 5]  # after t = -1, 0, 1, ...
    assert Record.open(path).last() == (6, 0)


class Awkward(PAdaMFed):
    """Is interrupted in the middle of a step, after the clients' states have been accepted."""

    calls = 0

    def broadcast(self, s: Any) -> Any:
        type(self).calls += 1
        if type(self).calls == 5:
            raise KeyboardInterrupt
        return super().broadcast(s)


def data() -> list[tuple[Vec, Vec]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(12, 4, generator=generator), torch.randint(3, (12,), generator=generator))
        for _ in range(6)
    ]


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(4, 3)


CHOICES: dict[str, Any] = {
    **{"rounds": 9, "per_round": 2, "local_steps": 2, "batch_size": 4, "progress": False},
    "seed": 5,
}


def test_train_resumes_with_the_model_and_the_data_given_again(tmp_path: Path) -> None:
    expected = tunefree.train(model(), data(), test=data()[0], algorithm="padamfed", **CHOICES)
    path = tmp_path / "run.sqlite"
    Awkward.calls = 0
    with pytest.raises(KeyboardInterrupt):
        tunefree.train(model(), data(), test=data()[0], algorithm=Awkward, out=path, **CHOICES)
    record = Record.open(path)
    assert (record.state, record.last()) == ("interrupted", (3, 0))
    with pytest.raises(ConfigError, match="was your own.* give it again"):
        tunefree.resume(path, model(), data(), progress=False)
    run = tunefree.resume(path, model(), data(), data()[0], algorithm=Awkward, progress=False)
    assert run.theta_sha256 == expected.theta_sha256
    assert [row.get("accuracy") for row in run.history] == [
        row.get("accuracy") for row in expected.history
    ]


def test_a_step_that_was_cut_short_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two steps wait for their commit when the third is interrupted half way."""
    expected = tunefree.train(model(), data(), algorithm=Scaffold(eta=0.1), **CHOICES)
    path = tmp_path / "run.sqlite"
    run = interrupted_in_accept(path, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        for _ in run:
            pass
    monkeypatch.undo()
    assert Record.open(path).last() == (4, 0)
    again = tunefree.resume(path, model(), data(), progress=False)
    assert again.theta_sha256 == expected.theta_sha256


def interrupted_in_accept(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    start, calls = choice.start, list[Any]()

    def started(*given: Any) -> Fleet:
        fleet = start(*given)
        accept = fleet.states.accept

        def cut(used: Any) -> None:
            accept(used)
            calls.append(used)
            if len(calls) == 6:
                raise KeyboardInterrupt

        fleet.states.accept = cut  # type: ignore[method-assign]
        return fleet

    monkeypatch.setattr(choice, "start", started)
    more: dict[str, Any] = {"commit_every": 3, "fleet": "serial", "out": path}
    return iter(Run(model(), data(), algorithm=Scaffold(eta=0.1), **(CHOICES | more)))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"model": nn.Linear(4, 3)}, "its first model was"),
        ({"clients": data()[:5]}, "was started with 6 clients, and now there are 5"),
        ({"clients": [(x[:9], y[:9]) for x, y in data()]}, "its clients' data was"),
        ({"model": None}, "you give them again: tunefree.resume\\(path, model, clients\\)"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    Awkward.calls = 0
    tunefree.train(model(), data(), out=path, **CHOICES)
    before = scores(path)
    arguments: dict[str, Any] = {"model": model(), "clients": data()} | given
    with pytest.raises(ConfigError, match=sentence):
        tunefree.resume(path, progress=False, **arguments)
    assert scores(path) == before


def test_a_run_of_train_is_not_for_the_command_line(tmp_path: Path) -> None:
    tunefree.train(model(), data(), out=tmp_path / "run.sqlite", **CHOICES)
    with pytest.raises(
        ConfigError, match="resume it in Python, where you give them again: tunefree.resume"
    ):
        resume_command(tmp_path / "run.sqlite")


def test_a_diverged_run_cannot_be_resumed(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    with pytest.raises(ValueError, match="diverged"):
        whole(prepare(settings(path, algorithm="fedavg", option__eta=1e38)))
    with pytest.raises(ConfigError, match="has diverged and cannot be resumed"):
        resume_command(path)


def test_a_run_of_polarfls_earlier_rule_is_read_but_not_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its server did not keep its last direction, nor count the clients that it had heard of."""
    path = tmp_path / "run.sqlite"
    stop(prepare(settings(path, algorithm="polarfl")), 3)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM vector WHERE field IN ('g', 'known')")
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="earlier rule of PolarFL, whose server had no g or kno"):
        resume_command(path)
    assert path.read_bytes() == before
    assert main(["show", str(path)]) == 0
    assert main(["report", str(path), "-o", str(tmp_path / "r.html")]) == 0
    assert "PolarFL" in capsys.readouterr().out
    assert (tmp_path / "r.html").exists()
    assert Record.open(path).vectors()["theta"].size > 0


def test_a_run_of_an_earlier_version_is_not_continued(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    stop(prepare(settings(path)), 3)
    db = sqlite3.connect(path)
    db.execute("""UPDATE run SET value = '{"seed": "0"}' WHERE key = 'identity'""")
    db.commit()
    db.close()
    with pytest.raises(ConfigError, match="started by an earlier tunefree"):
        resume_command(path)


@pytest.mark.parametrize(
    "words",
    [
        ("--local-steps", "5"),
        ("--rounds", "5", "--seed", "1"),
        ("--set", "option.eta=1"),
        ("--set", "rounds=9"),
        ("a.toml",),
    ],
)
def test_a_run_keeps_its_settings(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--resume", str(tmp_path / "run.sqlite"), *words]) == 2
    assert "a run resumes with the settings it started with" in capsys.readouterr().err
