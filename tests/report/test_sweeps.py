"""The sensitivity to a step size, as `tunefree sweep` finds it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.report.conftest import configured, made, scores
from tunefree.record import Summary
from tunefree.report.content import content


def swept(
    eta: float, accuracy: float, seed: int = 1, state: str = "done", T: int = 9, **facts: object
) -> Summary:
    settings = configured(seed, option__eta=eta, rounds=T)
    noted = {"role": "sweep", "title": "FedAvg", "sweep": {"over": "eta"}, "state": state}
    name = f"{eta}-{seed}-{T}"
    return made(name, scores(accuracy), settings=settings, **{**noted, **facts})


def free(T: int, **settings: object) -> Summary:
    facts = {"title": "PAdaMFed", "formulas": {"gamma": "1 / T"}, "state": "done"}
    return made(f"free-{T}", scores(0.7), settings=configured(1, rounds=T, **settings), **facts)


def figures(*runs: Summary) -> list[dict[str, Any]]:
    (workload,) = content(runs)["workloads"]
    drawn = workload["sensitivity"]
    assert isinstance(drawn, list)
    return drawn


def test_a_diverged_seed_has_accuracy_0() -> None:
    runs = [swept(0.1, 0.8, 1), swept(0.1, 0.5, 2, "diverged"), swept(0.01, 0.6)]
    (figure,) = figures(*runs)
    low, high = figure["lines"][0]["points"]
    assert (high["mean"], high["low"], high["high"]) == (pytest.approx(0.4), 0, 0.8)
    assert (high["seeds"], high["diverged"]) == (2, 1)
    assert low["mean"] == 0.6


def test_a_diverged_loss_is_excluded() -> None:
    def run(eta: float, seed: int, loss: float, state: str = "done") -> Summary:
        settings = configured(seed, option__eta=eta)
        rows = [{"t": 0, "loss": loss}]
        facts = {"role": "sweep", "sweep": {"over": "eta"}, "state": state}
        return made(f"{eta}-{seed}", rows, settings=settings, **facts)

    (figure,) = figures(run(0.1, 1, 2.0), run(0.1, 2, 9e9, "diverged"), run(0.2, 1, 3.0))
    assert [point["mean"] for point in figure["lines"][0]["points"]] == [2.0, 3.0]
    assert figure["lines"][0]["width"] is None


def test_the_width_is_that_of_the_sweep() -> None:
    runs = [swept(0.01, 0.8), swept(0.1, 0.9), swept(1.0, 0.5, state="diverged")]
    (figure,) = figures(*runs)
    width = figure["lines"][0]["width"]
    assert figure["within"] == 0.05
    assert width["best"] == 0.1
    assert width["low"] == pytest.approx(10**-1.5)
    assert width["high"] == pytest.approx(10 ** (-1 + 0.05 / 0.9))
    assert width["decades"] == pytest.approx(0.5 + 0.05 / 0.9)
    assert not width["cut"]
    assert figures(*runs[:2])[0]["lines"][0]["width"]["cut"]


def test_no_width_where_nothing_works_or_the_sweep_is_running() -> None:
    guessing = [swept(eta, 0.12, label_counts=[[5] * 10]) for eta in (0.1, 1.0)]
    (figure,) = figures(*guessing)
    assert figure["lines"][0]["width"] is None
    (figure,) = figures(*(swept(eta, 0.0, state="diverged") for eta in (0.1, 1.0)))
    assert figure["lines"][0]["width"] is None
    (figure,) = figures(swept(0.1, 0.8), swept(1.0, 0.2, state="running"))
    assert figure["lines"][0]["width"] is None


def test_level_lines_are_of_the_same_setting() -> None:
    sweep = [swept(0.1, 0.8), swept(1.0, 0.3)]
    (figure,) = figures(*sweep, free(9), free(99))
    assert [level["label"] for level in figure["level"]] == ["PAdaMFed, rounds = 9"]
    (figure,) = figures(*sweep, free(9, schedule="buffered"))
    assert figure["level"] == []


def test_a_sweep_in_two_settings_is_two_figures() -> None:
    both = [swept(eta, 0.5, T=T) for T in (9, 99) for eta in (0.1, 1.0)]
    drawn = figures(*both, free(99))
    assert [(f["id"], f["title"], len(f["level"])) for f in drawn] == [
        ("eta", "eta, rounds = 9", 0),
        ("eta-2", "eta, rounds = 99", 1),
    ]


def test_steps_typed_as_whole_numbers_are_points_too() -> None:
    (figure,) = figures(*(swept(eta, 0.5) for eta in (1, 2)))
    assert figure["key"] == "eta"
    assert [point["x"] for point in figure["lines"][0]["points"]] == [1, 2]


def test_a_swept_value_counts_a_seed_once() -> None:
    again = swept(0.1, 0.2, state="interrupted")
    (figure,) = figures(swept(0.1, 0.8), again, swept(1.0, 0.3))
    assert [point["seeds"] for point in figure["lines"][0]["points"]] == [1, 1]


def test_a_sweep_is_drawn_by_every_score() -> None:
    def run(eta: float, recall: float) -> Summary:
        settings = configured(1, option__eta=eta)
        facts = {"role": "sweep", "sweep": {"over": "eta"}, "state": "done", "settings": settings}
        counts = [[5] * 4]
        return made(f"{eta}", scores(0.9, recall=recall), label_counts=counts, **facts)

    (figure,) = figures(run(0.1, 0.3), run(1.0, 0.4))
    assert list(figure["by"]) == ["accuracy", "recall"]
    assert [point["mean"] for point in figure["by"]["recall"]["lines"][0]["points"]] == [0.3, 0.4]
    assert figure["by"]["recall"]["lines"][0]["width"] is None
    assert figure["chance"] == 0.25
