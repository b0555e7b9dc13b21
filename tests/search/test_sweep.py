"""`tunefree sweep`: the width of the range of step sizes that work."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.search.small import FLAGS, run_here, run_scripted, settings
from tunefree.cli import main
from tunefree.errors import ConfigError
from tunefree.record import Record
from tunefree.report.sweeps import width
from tunefree.search import batch
from tunefree.search.batch import Result
from tunefree.search.sweeping import sweep


@pytest.fixture(autouse=True)
def in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("curve", "best", "low", "high", "cut"),
    [
        # falls by 0.1 a decade: 0.05 below the best half a decade away, on both sides
        ([(0.01, 0.8), (0.1, 0.9), (1, 0.8)], 0.1, 10**-1.5, 10**-0.5, (False, False)),
        # a plateau, then a cliff of 0.5
        ([(0.01, 0.4), (0.1, 0.9), (1, 0.9), (10, 0.4)], 0.1, 10**-1.1, 10**0.1, (False, False)),
        # everything works
        ([(0.01, 0.88), (0.1, 0.9), (1, 0.86)], 0.1, 0.01, 1, (True, True)),
        # the best is at the edge
        ([(0.01, 0.1), (0.1, 0.2), (1, 0.7)], 1, 10**-0.1, 1, (False, True)),
        # a second hill is not connected
        ([(0.01, 0.89), (0.1, 0.2), (1, 0.9), (10, 0.88)], 1, 10 ** (-0.05 / 0.7), 10, (0, 1)),
        # exactly 0.05 below still counts
        ([(0.1, 0.45), (1, 0.5)], 1, 0.1, 1, (True, True)),
    ],
)
def test_width_of_hand_made_curves(
    curve: list[tuple[float, float]], best: float, low: float, high: float, cut: tuple[bool, bool]
) -> None:
    found = width(curve)
    assert found is not None
    assert found.best == best
    assert [found.low, found.high] == pytest.approx([low, high])
    assert (found.cut_low, found.cut_high) == cut
    assert found.decades == pytest.approx(math.log10(high / low))


def test_nothing_that_works_has_no_width() -> None:
    assert width([(0.1, 0.0), (1, 0.0)]) is None
    assert width([(0.1, 0.11), (1, 0.14)], chance=0.1) is None
    assert width([(0.1, 0.11), (1, 0.16)], chance=0.1) is not None


def test_a_sweep_in_which_nothing_works_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(batch, "run_all", run_scripted(lambda _: [0.1, 0.12]))
    argv = ["sweep", "fedavg", "--over", "eta", "--values", "1", "10", *FLAGS]
    assert main(argv) == 0
    assert "no eta that was tried is clearly better than guessing" in capsys.readouterr().out
    assert main([*argv, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["width"] is None


curves = st.lists(st.floats(0, 1), min_size=2, max_size=8).filter(lambda scores: max(scores) > 0.05)


@given(curves, st.sampled_from([0.1, 7.0]))
def test_width_is_the_same_in_other_units(scores: list[float], unit: float) -> None:
    steps = [10 ** (place / 2) for place in range(len(scores))]
    original = width(list(zip(steps, scores, strict=True)))
    scaled = width([(unit * step, score) for step, score in zip(steps, scores, strict=True)])
    assert original is not None
    assert scaled is not None
    assert scaled.decades == pytest.approx(original.decades, abs=1e-9)
    assert original.low <= original.best <= original.high


@given(curves)
def test_width_contains_all_that_is_good_around_the_best(scores: list[float]) -> None:
    steps = [10.0**place for place in range(len(scores))]
    found = width(list(zip(steps, scores, strict=True)))
    assert found is not None
    at = dict(zip(steps, scores, strict=True))
    inside = [step for step in steps if found.low <= step <= found.high]
    assert all(at[step] >= max(scores) - 0.05 for step in inside)
    mirrored = width([(1 / step, score) for step, score in reversed(list(at.items()))])
    assert mirrored is not None
    if scores.count(max(scores)) == 1:
        assert mirrored.decades == pytest.approx(found.decades, abs=1e-9)


def test_a_tuning_free_method_is_swept_through_explicit_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(batch, "run_all", run_here)
    argv = ["sweep", "padamfed", "--over", "gamma", "--values", "0.3", "0.003", *FLAGS]
    assert main([*argv, "--seeds", "0", "1", "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["theory"] == pytest.approx((3 * 2) ** 0.25 / 8**0.75)
    assert [point["value"] for point in result["points"]] == [0.003, 0.3]
    for point in result["points"]:
        accuracies = []
        for run in point["runs"]:
            record = Record.open(Path(run["run"]))
            facts = record.facts()
            assert facts.role == "sweep"
            assert (facts.sweep["over"], facts.sweep["value"]) == ("gamma", point["value"])
            assert facts.settings["explicit_steps"] is True
            assert facts.settings["option"] == {"gamma": point["value"]}
            accuracies.append(record.history()[-1]["accuracy"])
        assert point["accuracy"] == pytest.approx(sum(accuracies) / 2)
    assert result["width"]["best"] == 0.3
    assert main([*argv, "--seeds", "0", "1"]) == 0
    out = capsys.readouterr().out
    assert f"{result['width']['decades']:.2f} decades" in out
    assert "it may extend further above" in out
    assert "the formula gives gamma = 0.329" in out


def test_a_diverged_run_counts_as_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = run_scripted(lambda c: None if c.option["eta"] == 1 and c.seed else [0.5, 0.8])
    monkeypatch.setattr(batch, "run_all", scripted)
    done = sweep(settings("fedavg"), "eta", [1, 0.1], [0, 1], Path("x"))
    assert [point[:2] for point in done.points] == [(0.1, 0.8), (1, 0.4)]
    assert done.theory is None


def test_failed_runs_are_excluded_and_exit_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted = run_scripted(lambda _: [0.5, 0.8])
    failing = [0.1]

    def run_all(runs: list[object], *_: object) -> list[Result]:
        return [
            r._replace(state="failed", reason="no memory")
            if r.run.settings.option["eta"] in failing
            else r
            for r in scripted(runs, 0)
        ]

    monkeypatch.setattr(batch, "run_all", run_all)
    argv = ["sweep", "fedavg", "--over", "eta", "--values", "0.1", "1", *FLAGS]
    assert main(argv) == 1
    assert "-, 1 of 1 failed" in capsys.readouterr().out
    failing.append(1)
    with pytest.raises(ConfigError, match="every run failed: no memory"):
        sweep(settings("fedavg"), "eta", [1, 0.1], [0], Path("x"))


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["fedavg", "--over", "gama"], "--over = 'gama' is not known; choose from eta"),
        (["padamfed", "--over", "etta"], "did you mean 'eta'?"),
        (["fedavg", "--over", "sys"], "choose from eta"),
        (["fedavg:eta=0.5", "--over", "eta"], "fixes eta, which --over varies; remove it"),
        (["fedavg", "--over", "eta", "--values", "0.1"], "two or more different step sizes"),
        (["fedavg", "--over", "eta", "--values", "1", "1"], "two or more different step sizes"),
        (["fedavg", "--over", "eta", "--values", "-1", "1"], "option.eta=-1.0 is out of"),
        (["fedavg", "--over", "eta", "--data", "synthetic-quadratic"], "has no classes"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(
    argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", *FLAGS, *argv]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert sentence in err
