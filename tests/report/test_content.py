"""What a report says is what the run files hold."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.report.conftest import SEARCH, planned
from tunefree.record import Record
from tunefree.report.arms import POINTS, Arm, grouped, thinned
from tunefree.report.content import content
from tunefree.report.runs import Reading, found, read


def said_of(*paths: Path) -> dict[str, Any]:
    return content([read(path) for path in found(paths)])


@pytest.fixture(scope="module")
def workload(runs: Path) -> dict[str, Any]:
    (only,) = said_of(runs)["workloads"]
    assert isinstance(only, dict)
    return only


def arm(workload: dict[str, Any], label: str) -> dict[str, Any]:
    (one,) = [arm for arm in workload["arms"] if arm["label"] == label]
    assert isinstance(one, dict)
    return one


def made(name: str, rows: Sequence[Mapping[str, float]] = (), /, **facts: Any) -> Reading:
    return Reading(Path(f"{name}.sqlite"), facts, rows, {}, {}, {})


def test_runs_that_differ_by_the_seed_are_one_arm(workload: dict[str, Any]) -> None:
    seeds = {each["label"]: each["seeds"] for each in workload["arms"]}
    assert seeds == {
        **{"PAdaMFed": 2, "FedAvg, tuned": 2, "ComParFreFL": 1, "Late": 1, "Too far": 1},
    }
    assert workload["title"] == "digits, dirichlet:0.1, mlp"


def test_a_curve_is_the_mean_and_the_range_of_its_seeds(
    runs: Path, workload: dict[str, Any]
) -> None:
    both = [Record.open(runs / f"padamfed-{seed}.sqlite").history() for seed in (1, 2)]
    curve = arm(workload, "PAdaMFed")
    assert curve["x"]["round"] == [0, 2, 4, 6, 8]
    assert curve["seeds_at"] == [2] * 5
    at_4 = [next(row for row in rows if row["t"] == 3) for rows in both]
    values = [row["accuracy"] for row in at_4]
    drawn = curve["y"]["accuracy"]
    assert drawn["mean"][2] == pytest.approx(statistics.fmean(values), rel=1e-5)
    assert (drawn["low"][2], drawn["high"][2]) == pytest.approx((min(values), max(values)), 1e-5)
    assert curve["x"]["bits_up"][2] == statistics.fmean(row["bits_up"] for row in at_4)
    ends = [rows[-1]["accuracy"] for rows in both]
    assert curve["final"]["accuracy"] == {
        "mean": pytest.approx(statistics.fmean(ends)),
        "sd": pytest.approx(statistics.stdev(ends)),
        "seeds": 2,
    }


def test_virtual_time_is_an_axis_only_of_arms_that_have_it(workload: dict[str, Any]) -> None:
    assert "time" in workload["axes"]
    assert [each["label"] for each in workload["arms"] if "time" in each["x"]] == ["Late"]


def test_a_diverged_run_is_shown_as_diverged(workload: dict[str, Any]) -> None:
    lost = arm(workload, "Too far")
    assert lost["state"] == "diverged"
    assert lost["final"] == {}
    assert "not finite" in lost["runs"][0]["reason"] or "non-finite" in lost["runs"][0]["reason"]


def test_what_did_not_end_well_is_in_the_first_sentence(runs: Path) -> None:
    assert said_of(runs)["lead"] == (
        "7 runs in 5 arms, 3 sweep runs, 1 trial run. Not finished: 2 diverged."
    )


def test_trials_are_counted_but_not_drawn(runs: Path, workload: dict[str, Any]) -> None:
    bill = {row["label"]: row for row in workload["bill"]}
    assert bill["FedAvg, tuned"]["search"] == SEARCH  # noted by both seeds, spent once
    assert bill["FedAvg, tuned"]["found"][0]["eta"] == 0.1
    assert bill["PAdaMFed"]["search"]["trials"] == 0
    assert bill["Too far"]["search"] is None  # by hand: nobody knows after how many attempts
    last = Record.open(runs / "trial.sqlite").history()[-1]
    assert bill["SCAFFOLD, trials"]["search"] == {
        **{"trials": 1, "rounds": 8, "samples": last["drawn"]},
        **{key: last[key] for key in ("bits_up", "bits_down")},
    }


def test_a_sweep_is_one_line_over_its_step_sizes(workload: dict[str, Any]) -> None:
    (sweep,) = workload["sensitivity"]
    assert (sweep["key"], sweep["measure"]) == ("eta", "accuracy")
    (line,) = sweep["lines"]
    assert line["label"] == "FedAvg"
    assert [(p["x"], p["seeds"], p["diverged"]) for p in line["points"]] == [
        *((0.01, 1, 0), (1.0, 1, 0), (1e30, 0, 1)),
    ]
    assert line["points"][2]["mean"] is None
    assert [level["label"] for level in sweep["level"]] == ["ComParFreFL", "Late", "PAdaMFed"]


def test_traffic_in_both_directions_and_values_alone(runs: Path, workload: dict[str, Any]) -> None:
    rows = {row["label"]: row for row in workload["traffic"]}
    last = Record.open(runs / "compressed.sqlite").history()[-1]
    for key in ("bits_up", "bits_down", "value_bits_up", "value_bits_down"):
        assert rows["ComParFreFL"][key] == last[key]
    assert rows["ComParFreFL"]["value_bits_up"] < rows["ComParFreFL"]["bits_up"]


def test_staleness_of_buffered_runs_alone(runs: Path, workload: dict[str, Any]) -> None:
    (late,) = workload["staleness"]
    recorded = Record.open(runs / "late.sqlite").staleness()
    assert late["label"] == "Late"
    assert sum(late["bars"]) == sum(recorded.values()) == 8 * 3
    assert late["worst"] == max(recorded)
    assert dict(enumerate(late["bars"])) == {
        tau: recorded.get(tau, 0) for tau in range(len(late["bars"]))
    }


def test_steps_come_with_their_formulas(workload: dict[str, Any]) -> None:
    assert ["eta", 0.1, ""] in arm(workload, "FedAvg, tuned")["steps"]
    assert arm(workload, "PAdaMFed")["tuning_free"]
    assert not arm(workload, "FedAvg, tuned")["tuning_free"]
    hand = made("a", formulas={"eta": "1 / K"}, config={"algorithm": {"options": {"eta": 0.5}}})
    assert not hand.tuning_free


def test_the_picture_of_the_clients(workload: dict[str, Any]) -> None:
    counts = workload["picture"]["counts"]
    assert len(counts) == workload["picture"]["clients"] == 6


def test_a_run_of_train_has_no_settings_and_is_shown_all_the_same(own: Path) -> None:
    said = said_of(own)
    (workload,) = said["workloads"]
    (only,) = workload["arms"]
    assert only["x"]["round"] == [0, 25, 50]
    assert said["runs"][0]["state"] == "done"


def test_a_file_that_knows_nothing_yet(tmp_path: Path) -> None:
    Record.create(tmp_path / "new.sqlite", {}).close()
    said = said_of(tmp_path)
    (only,) = said["workloads"][0]["arms"]
    assert (only["label"], only["state"], only["final"]) == ("new", "unknown", {})


def test_facts_of_another_shape_are_left_out() -> None:
    odd = made("odd", config=3, tuning="x", steps=[1], label_counts=[[]], versions=None, sweep=1)
    said = content([odd, made("odd", config=None, role="sweep"), made("odd", role="trial")])
    assert said["workloads"][0]["picture"] == {}


def test_options_separate_arms_unless_somebody_named_them() -> None:
    def fedavg(eta: float, N: int = 5, **facts: object) -> Reading:
        settings = {"name": "fedavg", "options": {"eta": eta}}
        return made(
            "x", title="FedAvg", config={"algorithm": settings, "system": {"N": N}}, **facts
        )

    def labels(*runs: Reading) -> list[str]:
        return [arm.label for arm in grouped(runs)]

    assert labels(fedavg(0.1), fedavg(0.1)) == ["FedAvg"]
    assert labels(fedavg(0.1), fedavg(0.2)) == ["FedAvg, eta = 0.1", "FedAvg, eta = 0.2"]
    assert labels(fedavg(0.1, arm="best"), fedavg(0.2, arm="best")) == ["best"]
    apart = labels(fedavg(0.1, arm="best"), fedavg(0.1, N=9, arm="best"))
    assert apart == ["best, N = 5", "best, N = 9"]


def test_a_seed_that_stopped_early_is_not_averaged_on() -> None:
    def rows(values: list[float]) -> list[dict[str, float]]:
        return [{"t": t, "accuracy": value} for t, value in enumerate(values)]

    whole = made("a", rows([0.2, 0.4, 0.6]), state="done")
    half = made("b", rows([0.4, 0.8]), state="interrupted")
    arm = Arm("x", [whole, half])
    curve = arm.curve(["accuracy"], ["round"])
    assert curve["seeds_at"] == [2, 2, 1]
    assert curve["y"]["accuracy"]["mean"] == pytest.approx([0.3, 0.6, 0.6])
    assert arm.state == "1 done, 1 interrupted"
    assert arm.final("accuracy") == {"mean": 0.6, "sd": None, "seeds": 1}


def test_long_runs_are_thinned_from_end_to_end() -> None:
    few = thinned(range(10_001))
    assert len(few) == len(set(few)) == POINTS
    assert (few[0], few[-1]) == (0, 10_000)


def test_a_run_being_written_is_shown_as_running(tmp_path: Path) -> None:
    run = planned(tmp_path / "live.sqlite")
    rows = iter(run)
    for _ in range(5):
        next(rows)
    line = said_of(tmp_path)["runs"][0]
    assert (line["state"], line["rounds"], line["of"]) == ("running", 4, 8)
    rows.close()  # type: ignore[attr-defined]
    assert said_of(tmp_path)["runs"][0]["state"] == "interrupted"


def test_a_run_whose_writer_died_is_not_running(tmp_path: Path) -> None:
    Record.create(tmp_path / "a.sqlite", {"state": "running"}).close()
    assert said_of(tmp_path)["runs"][0]["state"] == "interrupted"


def test_refused_and_absent_replies_are_counted() -> None:
    runs = [
        Reading(Path("x"), {"arm": "x"}, [], {}, {}, {"lost": 2, "late": 1}),
        Reading(Path("y"), {"arm": "x"}, [], {}, {}, {"lost": 3}),
    ]
    assert content(runs)["workloads"][0]["absences"] == [
        {"label": "x", "reason": "late", "count": 1},
        {"label": "x", "reason": "lost", "count": 5},
    ]
