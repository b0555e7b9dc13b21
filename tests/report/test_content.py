"""The content of a report is what the run files contain."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tunefree
from tests.report.conftest import SEARCH, configured, made, planned, scores
from tunefree.methods.fedavg import FedAvg
from tunefree.record import Facts, Record, Summary
from tunefree.report.content import content
from tunefree.report.files import find
from tunefree.report.grouping import POINTS, Method, group, short, thin


def content_of(*paths: Path) -> dict[str, Any]:
    return content(find(paths).runs)


@pytest.fixture(scope="module")
def workload(runs: Path) -> dict[str, Any]:
    (only,) = content_of(runs)["workloads"]
    assert isinstance(only, dict)
    return only


def method(workload: dict[str, Any], label: str) -> dict[str, Any]:
    (one,) = [method for method in workload["methods"] if method["label"] == label]
    assert isinstance(one, dict)
    return one


def test_runs_that_differ_by_the_seed_are_one_method(workload: dict[str, Any]) -> None:
    seeds = {each["label"]: each["seeds"] for each in workload["methods"]}
    assert seeds == {
        **{"PAdaMFed": 2, "FedAvg, tuned": 2, "ComParFreFL": 1, "Late": 1, "Too far": 1},
    }
    assert workload["title"] == "digits, dirichlet:0.1, mlp"


def test_a_curve_is_the_mean_and_the_range_of_its_seeds(
    runs: Path, workload: dict[str, Any]
) -> None:
    both = [Record.open(runs / f"padamfed-{seed}.sqlite").history() for seed in (1, 2)]
    curve = method(workload, "PAdaMFed")
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


def test_virtual_time_is_an_axis_only_of_methods_that_have_it(workload: dict[str, Any]) -> None:
    assert "virtual_seconds" in workload["axes"]
    assert [
        method["label"] for method in workload["methods"] if "virtual_seconds" in method["x"]
    ] == ["Late"]


def test_a_diverged_run_is_shown_as_diverged(workload: dict[str, Any]) -> None:
    lost = method(workload, "Too far")
    assert lost["state"] == "diverged"
    assert lost["final"] == {}
    assert "not finite" in lost["runs"][0]["reason"] or "non-finite" in lost["runs"][0]["reason"]


def test_runs_that_did_not_finish_are_in_the_first_sentence(runs: Path) -> None:
    assert content_of(runs)["lead"] == (
        "7 runs of 5 methods, 3 sweep runs, 1 trial run. Not finished: 2 diverged."
    )


def test_trials_are_counted_but_not_drawn(runs: Path, workload: dict[str, Any]) -> None:
    bill = {row["label"]: row for row in workload["bill"]}
    assert bill["FedAvg, tuned"]["search"] == SEARCH  # in the files of both seeds, counted once
    assert bill["FedAvg, tuned"]["found"][0]["eta"] == 0.1
    assert bill["PAdaMFed"]["search"]["trials"] == 0
    assert bill["Too far"]["search"] is None  # by hand: the number of attempts is unknown
    last = Record.open(runs / "trial.sqlite").history()[-1]
    assert bill["SCAFFOLD, trials"]["search"] == {
        **{"trials": 1, "rounds": 8, "samples": last["samples"]},
        **{key: last[key] for key in ("bits_up", "bits_down")},
    }


def test_a_sweep_is_one_line_over_its_step_sizes(workload: dict[str, Any]) -> None:
    (sweep,) = workload["sensitivity"]
    assert (sweep["key"], sweep["measure"]) == ("eta", "accuracy")
    (line,) = sweep["lines"]
    assert line["label"] == "FedAvg"
    assert [(p["x"], p["seeds"], p["diverged"]) for p in line["points"]] == [
        *((0.01, 1, 0), (1.0, 1, 0), (1e30, 1, 1)),
    ]
    assert line["points"][2]["mean"] == 0  # as `tunefree sweep` counts a diverged run
    # Late ran on another schedule.
    assert [level["label"] for level in sweep["level"]] == ["ComParFreFL", "PAdaMFed"]


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
    assert ["eta", 0.1, "found by the search"] in method(workload, "FedAvg, tuned")["steps"]
    assert ["eta", 1e30, "given"] in method(workload, "Too far")["steps"]
    assert ["eta", pytest.approx(0.177, abs=1e-3), "1 / (K sqrt(T))"] in [
        *method(workload, "PAdaMFed")["steps"]
    ]
    assert method(workload, "PAdaMFed")["tuning_free"]
    assert not method(workload, "FedAvg, tuned")["tuning_free"]
    hand = made("a", formulas={"eta": "1 / K"}, settings={"option": {"eta": 0.5}})
    assert not hand.facts.tuning_free


def test_the_picture_of_the_clients(workload: dict[str, Any]) -> None:
    counts = workload["picture"]["counts"]
    assert len(counts) == workload["picture"]["clients"] == 6


def test_a_run_of_train_without_settings_is_shown_too(own: Path) -> None:
    report = content_of(own)
    (workload,) = report["workloads"]
    (only,) = workload["methods"]
    assert only["x"]["round"] == [0, 25, 50]
    assert report["runs"][0]["state"] == "done"


def test_a_file_without_facts(tmp_path: Path) -> None:
    Record.create(tmp_path / "new.sqlite", Facts()).close()
    report = content_of(tmp_path)
    (only,) = report["workloads"][0]["methods"]
    assert (only["label"], only["state"], only["final"]) == ("new", "unknown", {})


def test_facts_of_another_shape_are_ignored() -> None:
    odd = made("odd", settings=3, tuning="x", steps=[1], label_counts=[[]], versions=None, sweep=1)
    report = content([odd, made("odd", settings=None, role="sweep"), made("odd", role="trial")])
    assert report["workloads"][0]["picture"] == {}


def test_options_separate_methods_of_any_name() -> None:
    def fedavg(eta: float, N: int = 5, **facts: object) -> Summary:
        return made("x", settings=configured(option__eta=eta, clients=N), **facts)

    def labels(*runs: Summary) -> list[str]:
        return [method.label for method in group(runs)]

    assert labels(fedavg(0.1), fedavg(0.1)) == ["fedavg"]
    assert labels(fedavg(0.1), fedavg(0.2)) == ["fedavg, eta = 0.1", "fedavg, eta = 0.2"]
    tuned = labels(fedavg(0.1, label="fedavg@tuned"), fedavg(0.2, label="fedavg@tuned"))
    assert tuned == ["fedavg@tuned, eta = 0.1", "fedavg@tuned, eta = 0.2"]
    assert labels(fedavg(1, label="best"), fedavg(1.0, label="best")) == ["best"]
    apart = labels(fedavg(0.1, label="best"), fedavg(0.1, N=9, label="best"))
    assert apart == ["best, clients = 5", "best, clients = 9"]
    called = [made("x", title="FedAvg", settings={"option": {"eta": eta}}) for eta in (0.1, 0.2)]
    assert labels(*called) == ["FedAvg, eta = 0.1", "FedAvg, eta = 0.2"]


def test_a_seed_counts_once_however_often_it_was_run() -> None:
    def run(name: str, state: str, *accuracies: float, seed: int | None = 1) -> Summary:
        settings = configured(seed, option__eta=0.1, out=name)
        return made(name, scores(*accuracies), label="x", state=state, settings=settings)

    half, whole = run("half", "interrupted", 0.1, 0.2, 0.3), run("whole", "done", 0.5, 0.6)
    other = run("other", "done", 0.7, 0.8, seed=2)
    report = content([half, run("again", "done", 0.9, 0.9), whole, other])
    (only,) = report["workloads"][0]["methods"]
    assert [each["file"] for each in only["runs"]] == ["again.sqlite", "other.sqlite"]
    assert only["final"]["accuracy"]["mean"] == pytest.approx(0.85)
    assert (
        "2 run files repeat a seed of the same method and are excluded from the means"
        in report["lead"]
    )
    assert len(report["runs"]) == 4
    further = content([run("a", "interrupted", 0.1), half])["workloads"][0]["methods"][0]
    assert [each["file"] for each in further["runs"]] == ["half.sqlite"]
    no_seed = [run(name, "done", 0.5, seed=None) for name in "ab"]
    assert content(no_seed)["workloads"][0]["methods"][0]["seeds"] == 2
    assert "repeat" not in content(no_seed)["lead"]
    trials = [made(n, role="trial", settings=configured(1, option__eta=0.1)) for n in "ab"]
    assert content(trials)["workloads"][0]["bill"][0]["search"]["trials"] == 2


def test_numbers_can_be_drawn() -> None:
    assert type(short(3.0)) is int
    assert type(short(1.1e27)) is float
    assert short(0.12345678) == 0.123457


def test_where_each_step_size_came_from() -> None:
    facts = {"formulas": {"beta": "1 / T"}, "steps": {"eta": 0.3, "beta": 0.01, "gamma": 1.0}}
    settings = configured(option__eta=0.3, option__s=2, option__nesterov=True)

    def origins(**more: object) -> dict[str, tuple[float, str]]:
        lines = made("a", settings=settings, **facts, **more).facts.step_sizes
        return {name: (value, origin) for name, value, origin in lines}

    assert origins(tuning={**SEARCH, "chosen": {"eta": 0.3}}) == {
        **{"eta": (0.3, "found by the search"), "s": (2, "given")},  # typed as a whole number
        **{"beta": (0.01, "1 / T"), "gamma": (1.0, "default")},
    }
    assert origins(tuning={**SEARCH, "chosen": {"eta": 0.1}})["eta"] == (0.3, "given")
    assert origins(tuning=SEARCH)["eta"] == (0.3, "found by the search")  # an older file
    assert origins()["eta"] == (0.3, "given")


def test_only_what_was_searched_counts_as_tuned() -> None:
    settings = configured(1, option__eta=0.3, option__s=2.0)

    def tuned(tuning: object) -> tuple[object, object]:
        (only,) = content([made("a", label="x", settings=settings, tuning=tuning)])["workloads"]
        return only["methods"][0]["searched"], only["bill"][0]["found"]

    assert tuned({**SEARCH, "chosen": {"eta": 0.3}}) == (["eta"], [{"eta": 0.3}])
    assert tuned(SEARCH) == (["eta", "s"], [{"eta": 0.3, "s": 2.0}])  # an older file


def test_validation_scores_are_named_and_separate() -> None:
    def run(name: str, validation: float, **facts: object) -> Summary:
        settings = configured(1, option__eta=0.1, data="digits")
        settings["validation"] = validation
        return made(name, scores(0.5, loss=1.0), settings=settings, state="done", **facts)

    report = content([run("a", 0.0), run("b", 0.1), run("c", 0.1, role="trial")])
    test, validation = report["workloads"]
    assert test["measures"] == {"accuracy": "test accuracy", "loss": "test loss"}
    assert validation["measures"]["accuracy"] == "validation accuracy"
    assert validation["measures"]["loss"] == "validation loss"
    assert test["title"] == "digits"
    assert validation["title"] == "digits, scored on validation samples"
    assert [len(each["methods"]) for each in (test, validation)] == [1, 1]
    assert test["bill"][1]["label"] == "fedavg, trials"  # in the workload they were made for
    assert [run["scored_on"] for run in report["runs"]] == ["test", "validation", "validation"]


def test_a_mean_cost_is_of_full_trainings() -> None:
    def run(seed: int, state: str, *bits: int) -> Summary:
        rows = [{"t": t, "samples": 1, "bits_up": b, "bits_down": b} for t, b in enumerate(bits)]
        settings, uploads = configured(seed, option__eta=0.1), {0: len(bits)}
        facts = {"label": "x", "state": state, "config": settings, "tuning": SEARCH}
        return Summary(Path(f"{seed}.sqlite"), Facts.read(facts), rows, uploads=uploads)

    def costs(*runs: Summary) -> dict[str, Any]:
        report = content(runs)["workloads"][0]
        return {"traffic": report["traffic"], "training": report["bill"][0]["training"]}

    both = costs(run(1, "done", 10, 20, 30), run(2, "diverged", 10))
    assert both["traffic"][0]["bits_up"] == both["training"]["bits_up"] == 30
    assert both["traffic"][0]["uploads"] == [3, 3]
    assert both["training"]["rounds"] == 3
    assert costs(run(1, "diverged", 10)) == {"traffic": [], "training": {}}


def test_a_seed_that_stopped_early_is_averaged_only_so_far() -> None:
    def rows(values: list[float]) -> list[dict[str, float]]:
        return [{"t": t, "accuracy": value} for t, value in enumerate(values)]

    whole = made("a", rows([0.2, 0.4, 0.6]), state="done")
    half = made("b", rows([0.4, 0.8]), state="interrupted")
    method = Method("x", [whole, half])
    curve = method.curve(["accuracy"], ["round"])
    assert curve["seeds_at"] == [2, 2, 1]
    assert curve["y"]["accuracy"]["mean"] == pytest.approx([0.3, 0.6, 0.6])
    assert method.state == "1 done, 1 interrupted"
    assert method.final("accuracy") == {"mean": 0.6, "sd": None, "seeds": 1}


def test_long_runs_are_thinned_from_end_to_end() -> None:
    few = thin(range(10_001))
    assert len(few) == len(set(few)) == POINTS
    assert (few[0], few[-1]) == (0, 10_000)


def test_a_run_being_written_is_shown_as_running(tmp_path: Path) -> None:
    run = planned(tmp_path / "live.sqlite")
    rows = iter(run)
    for _ in range(5):
        next(rows)
    run.record.settle()
    line = content_of(tmp_path)["runs"][0]
    assert (line["state"], line["rounds"], line["T"]) == ("running", 4, 8)
    rows.close()
    assert content_of(tmp_path)["runs"][0]["state"] == "interrupted"


def test_a_run_whose_writer_died_is_not_running(tmp_path: Path) -> None:
    Record.create(tmp_path / "a.sqlite", Facts(state="running")).close()
    assert content_of(tmp_path)["runs"][0]["state"] == "interrupted"


def test_refused_and_missing_replies_are_counted() -> None:
    runs = [
        Summary(Path("x"), Facts(label="x"), absences={"lost": 2, "late": 1}),
        Summary(Path("y"), Facts(label="x"), absences={"lost": 3}),
    ]
    assert content(runs)["workloads"][0]["absences"] == [
        {"label": "x", "reason": "late", "count": 1},
        {"label": "x", "reason": "lost", "count": 5},
    ]


@pytest.fixture(scope="module")
def called(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function that trains a tiny run with `tunefree.train` and returns its file."""
    folder = tmp_path_factory.mktemp("called")

    def train(name: str, shift: float = 0.0, first: int = 0, **settings: Any) -> Path:
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(24, 4)).astype("float32") + np.float32(shift), np.arange(24) % 3
        model = torch.nn.Linear(4, 3)
        torch.nn.init.constant_(model.weight, 0.01 * first)
        torch.nn.init.zeros_(model.bias)
        if "algorithm" not in settings:
            settings = {"algorithm": FedAvg(eta=0.1)} | settings
        settings |= {"rounds": 2, "local_steps": 1}
        clients = [(x[i::3], y[i::3]) for i in range(3)]
        path = folder / f"{name}.sqlite"
        tunefree.train(model, clients, progress=False, out=path, **settings)
        return path

    return train


def test_runs_of_train_with_other_data_models_steps_or_losses_are_other_methods(
    called: Any,
) -> None:
    one = called("one")
    other_data, other_model = called("data", shift=1.0), called("model", first=1)
    other_step, other_seed = called("step", algorithm=FedAvg(eta=0.2)), called("seed", seed=1)
    other_loss = called("loss", loss=torch.nn.functional.multi_margin_loss)

    def methods(*paths: Path) -> dict[str, int]:
        (workload,) = content_of(*paths)["workloads"]
        return {method["label"]: method["seeds"] for method in workload["methods"]}

    assert methods(one, other_seed) == {"FedAvg": 2}
    assert methods(one, other_seed, other_step) == {"FedAvg, eta = 0.1": 2, "FedAvg, eta = 0.2": 1}
    assert [label.partition(" = ")[0] for label in methods(one, other_data)] == ["FedAvg, data"] * 2
    assert [label.partition(" = ")[0] for label in methods(one, other_model)] == [
        "FedAvg, model"
    ] * 2
    assert methods(one, other_loss) == {
        **{"FedAvg, loss = cross_entropy": 1, "FedAvg, loss = multi_margin_loss": 1},
    }
    assert len(methods(one, other_data, other_model, other_step, other_seed)) == 4


def test_a_copy_of_a_run_of_train_counts_once(called: Any, tmp_path: Path) -> None:
    (tmp_path / "copy.sqlite").write_bytes((first := called("original")).read_bytes())
    report = content_of(first, tmp_path / "copy.sqlite", called("again"))
    (only,) = report["workloads"][0]["methods"]
    assert only["seeds"] == 1
    assert "2 run files repeat a seed of the same method" in report["lead"]


def test_steps_of_an_own_algorithm_separate_its_runs(called: Any) -> None:
    paths = [
        called(f"own-{eta}", algorithm=lambda sys, eta=eta: FedAvg(eta=eta)) for eta in (0.1, 0.2)
    ]
    (workload,) = content_of(*paths)["workloads"]
    assert [method["label"] for method in workload["methods"]] == [
        "FedAvg, eta = 0.1",
        "FedAvg, eta = 0.2",
    ]


def test_runs_of_one_name_may_make_their_model_by_their_seed() -> None:
    def run(file: str, seed: int, model: str, **facts: object) -> Summary:
        identity = {"first model": model, "clients' data": "d", "inputs": "i"}
        given = {"door": "train", "identity": identity, "settings": configured(seed), **facts}
        return made(file, scores(0.5), state="done", **given)

    def labels(*runs: Summary) -> list[str]:
        return [method.label for method in group(runs)]

    assert labels(run("a", 0, "x", label="mine"), run("b", 1, "y", label="mine")) == ["mine"]
    assert len(labels(run("a", 0, "x", label="mine"), run("b", 0, "y", label="mine"))) == 2
    assert (
        len(labels(run("a", 0, "x"), run("b", 1, "y"))) == 2
    )  # no label says that they belong together


def test_own_measures_are_drawn_like_ours() -> None:
    own = made("a", scores(0.5, 0.7, recall=0.2, loss=1.0), label="x", state="done")
    report = content([own])
    (workload,) = report["workloads"]
    assert workload["measures"] == {
        **{"accuracy": "test accuracy", "loss": "test loss", "recall": "recall"},
    }
    (only,) = workload["methods"]
    assert only["final"]["recall"]["mean"] == 0.2
    assert only["y"]["recall"]["mean"] == [0.2, 0.2]
    assert report["runs"][0]["scores"] == {"accuracy": 0.7, "loss": 1.0, "recall": 0.2}


def test_a_command_run_with_another_model_is_no_repetition() -> None:
    identity = {"first model": "m", "clients' data": "d"}
    facts = {"state": "done", "settings": configured(1)}
    one = made("one", scores(0.5), identity=identity, **facts)
    other = made("other", scores(0.5), identity=identity | {"first model": "x"}, **facts)
    methods = content([one, other])["workloads"][0]["methods"]
    assert [method["label"].partition(" = ")[0] for method in methods] == ["fedavg, model"] * 2
