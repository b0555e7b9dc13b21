"""A run continues to other rounds, finished or not, bit-identical to one started with them."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tunefree
from tests.durability.test_resume import CHOICES, data, model, scores, settings, stop, whole
from tunefree.cli import main
from tunefree.errors import ConfigError
from tunefree.methods import FedAvg, Scaffold
from tunefree.record import Record
from tunefree.run.run import prepare, resume_command
from tunefree.search.batch import plan, run_all

pytestmark = pytest.mark.filterwarnings("ignore:the formula gives beta ")

SMALL = (
    *("run", "--clients", "8", "--per-round", "3", "--local-steps", "2", "--model", "logistic"),
    *("--eval-every", "3", "--fleet", "serial"),
)
SCHEDULES = {
    "synchronous": (),
    "clocked": ("--delays", "mild"),
    **{
        dispatch: (
            *("--schedule", "buffered", "--concurrency", "6", "--dropout", "0.2"),
            *("--dispatch", dispatch, "--delays", "large"),
        )
        for dispatch in ("flush", "immediate", "queue")
    },
}


@pytest.fixture(autouse=True)
def in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(out: str, rounds: int, *more: str, algorithm: str = "scaffold") -> None:
    argv = [*SMALL, "--rounds", str(rounds), "--algorithm", algorithm, "--out", out, *more]
    assert main(argv) == 0


def resume(path: str, *more: str) -> int:
    return main(["run", "--resume", path, "--fleet", "serial", *more])


def assert_same(ours: str, theirs: str, ended: int) -> None:
    """All rows and states are; the run that ended there first has scores at that round too."""
    rows, others = scores(Path(ours)), scores(Path(theirs))
    assert "loss" in rows[ended]
    if "loss" not in others[ended]:
        rows[ended] = {key: rows[ended][key] for key in others[ended]}
    assert rows == others
    with closing(Record.open(Path(ours))) as a, closing(Record.open(Path(theirs))) as b:
        assert a.in_flight() == b.in_flight()
        for owner in range(-1, 8):
            mine, yours = a.vectors(owner), b.vectors(owner)
            assert mine.keys() == yours.keys()
            assert all(np.array_equal(mine[field], yours[field]) for field in yours)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("algorithm", ["scaffold", "fedbuff"])
def test_a_finished_run_continues(
    algorithm: str, schedule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = SCHEDULES[schedule]
    run("whole.sqlite", 13, *words, algorithm=algorithm)
    run("a.sqlite", 7, *words, algorithm=algorithm)
    assert resume("a.sqlite", "--rounds", "13") == 0
    out, err = capsys.readouterr()
    assert "T = 13 rounds" in out
    assert "resumes after round 7" in out
    assert "round 13/13" in err
    assert_same("a.sqlite", "whole.sqlite", ended=7)


def test_its_file_has_the_new_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    run("a.sqlite", 4)
    assert resume("a.sqlite", "--rounds", "6") == 0
    capsys.readouterr()
    assert main(["show", "a.sqlite"]) == 0
    assert "done after round 6 of 6" in capsys.readouterr().out
    assert main(["runs", "."]) == 0
    assert "6/6" in capsys.readouterr().out
    assert main(["export", "a.sqlite", "--csv", "-"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 7
    assert resume("a.sqlite", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["system"]["T"] == 6
    assert resume("a.sqlite", "--rounds", "9") == 0  # and again
    run("whole.sqlite", 9)
    rows, others = scores(Path("a.sqlite")), scores(Path("whole.sqlite"))
    assert [row["samples"] for row in rows] == [row["samples"] for row in others]
    assert rows[-1] == others[-1]


@pytest.mark.parametrize("rows", [0, 1, 4])
def test_an_interrupted_run_continues(rows: int, tmp_path: Path) -> None:
    for name, T in (("whole", 9), ("a", 7)):
        chosen = settings(tmp_path / f"{name}.sqlite", algorithm="scaffold", rounds=T)
        if name == "whole":
            whole(prepare(chosen))
        else:
            stop(prepare(chosen), rows)
    path = tmp_path / "a.sqlite"
    stop(resume_command(path, "serial", rounds=9), 2)  # and is interrupted again
    assert Record.open(path).summary().planned_rounds == 9
    assert (
        whole(resume_command(path, "serial"))
        == Record.open(tmp_path / "whole.sqlite").theta_sha256()
    )
    assert scores(path) == scores(tmp_path / "whole.sqlite")


def test_one_that_stops_before_its_first_new_round_keeps_the_new_end(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    whole(prepare(settings(path, algorithm="fedavg")))
    stop(resume_command(path, "serial", rounds=9), 0)
    whole(resume_command(path, "serial"))
    assert Record.open(path).last() == (8, 0)


def test_the_pool_continues_to_more_rounds(tmp_path: Path) -> None:
    expected = whole(prepare(settings(tmp_path / "whole.sqlite", algorithm="scaffold", rounds=9)))
    path = tmp_path / "a.sqlite"
    whole(prepare(settings(path, algorithm="scaffold")))
    assert whole(resume_command(path, "pool", 2, rounds=9)) == expected


def test_fewer_commits_lose_nothing(tmp_path: Path) -> None:
    more = {"algorithm": "scaffold", "commit_every": 4}
    expected = whole(prepare(settings(tmp_path / "whole.sqlite", **more, rounds=9)))
    path = tmp_path / "a.sqlite"
    whole(prepare(settings(path, **more)))
    assert whole(resume_command(path, "serial", rounds=9)) == expected


def test_an_interrupted_run_may_end_earlier(tmp_path: Path) -> None:
    expected = whole(prepare(settings(tmp_path / "whole.sqlite", algorithm="fedavg", rounds=5)))
    path = tmp_path / "a.sqlite"
    stop(prepare(settings(path, algorithm="fedavg")), 4)
    assert whole(resume_command(path, "serial", rounds=5)) == expected
    assert scores(path) == scores(tmp_path / "whole.sqlite")
    assert Record.open(path).summary().planned_rounds == 5


@pytest.mark.parametrize(
    ("algorithm", "rounds", "sentence"),
    [
        ("padamfed", "9", "PAdaMFed's steps depend on T (eta = 1 / (K sqrt(T)), gamma = (S K)^("),
        ("padamfed", "9", "): a run of 4 rounds cannot become one of 9; start a new run, or use a"),
        ("padamfed", "3", "PAdaMFed's steps depend on T"),
        ("masfl", "9", "MasFL's steps depend on T (beta = min(1, sqrt(S K / T))): a run of 4"),
        (
            "fedavg",
            "3",
            "--rounds 3 is too small: 'a.sqlite' has finished 4 of its 4 rounds already",
        ),
        ("fedavg", "0", "--rounds 0 is too small; it must be at least 1"),
    ],
)
def test_wrong_rounds_are_refused_and_the_file_stays_unchanged(
    algorithm: str, rounds: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run("a.sqlite", 4, algorithm=algorithm)
    before = Path("a.sqlite").read_bytes()
    capsys.readouterr()
    assert resume("a.sqlite", "--rounds", rounds) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert sentence in err
    assert Path("a.sqlite").read_bytes() == before


def test_rounds_that_are_done_are_too_few_for_an_interrupted_run(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    stop(prepare(settings(path, algorithm="fedavg")), 4)
    for rounds in (2, 3):
        with pytest.raises(ConfigError, match="has finished 3 of its 7 rounds already; give more"):
            resume_command(path, rounds=rounds)


@pytest.mark.parametrize("algorithm", ["fedavg", "padamfed"])
def test_the_same_rounds_change_nothing(algorithm: str, capsys: pytest.CaptureFixture[str]) -> None:
    run("a.sqlite", 4, algorithm=algorithm)
    before = scores(Path("a.sqlite"))
    assert resume("a.sqlite", "--rounds", "4") == 0
    assert scores(Path("a.sqlite")) == before


def test_steps_given_by_hand_do_not_depend_on_rounds() -> None:
    steps = [f"--set=option.{name}=0.1" for name in ("eta", "gamma", "beta")]
    words = (*steps, "--set=explicit_steps=true")
    run("whole.sqlite", 9, *words, algorithm="padamfed")
    run("a.sqlite", 6, *words, algorithm="padamfed")
    assert resume("a.sqlite", "--rounds", "9") == 0
    assert_same("a.sqlite", "whole.sqlite", ended=6)


OWN: dict[str, Any] = {key: CHOICES[key] for key in CHOICES if key != "rounds"}


@pytest.mark.parametrize("algorithm", ["scaffold", Scaffold(eta=0.3), lambda sys: FedAvg(eta=0.2)])
def test_train_continues_to_more_rounds(algorithm: Any, tmp_path: Path) -> None:
    given = {"algorithm": algorithm, **OWN}
    expected = tunefree.train(model(), data(), rounds=14, **given)
    path = tmp_path / "a.sqlite"
    tunefree.train(model(), data(), rounds=9, out=path, **given)
    made = {} if not callable(algorithm) else {"algorithm": algorithm}
    longer = tunefree.resume(path, model(), data(), rounds=14, progress=False, **made)
    assert longer.theta_sha256 == expected.theta_sha256
    assert len(longer.history) == 15
    facts = longer.record.facts()
    assert (facts.system["T"], facts.settings["rounds"], facts.door) == (14, 14, "train")
    again = tunefree.resume(path, model(), data(), progress=False, **made)
    assert again.theta_sha256 == expected.theta_sha256


def test_train_refuses_what_the_command_does(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    tunefree.train(model(), data(), rounds=9, algorithm="padamfed", out=path, **OWN)
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="a run of 9 rounds cannot become one of 14"):
        tunefree.resume(path, model(), data(), rounds=14, progress=False)
    with pytest.raises(ConfigError, match=r"rounds = '14' must be a whole number"):
        tunefree.resume(path, model(), data(), rounds="14", progress=False)  # type: ignore[arg-type]
    assert path.read_bytes() == before


def test_a_run_of_the_command_resumes_in_python(tmp_path: Path) -> None:
    run("whole.sqlite", 9)
    run("a.sqlite", 6)
    tunefree.resume("a.sqlite", rounds=9, fleet="serial", progress=False)
    assert_same("a.sqlite", "whole.sqlite", ended=6)


def test_a_batch_does_not_take_a_longer_run_for_its_own(tmp_path: Path) -> None:
    planned = plan(tmp_path, "fedavg", settings(Path("unused"), algorithm="fedavg"))
    run_all([planned], workers=1)
    whole(resume_command(planned.path, "serial", rounds=9))
    with pytest.raises(ConfigError, match="contains another run"):
        run_all([planned], workers=1)
