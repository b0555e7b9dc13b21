"""Scores of tasks: pure functions, on numbers made by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tunefree_evidence.challenge import folder, page, score


def method(name: str, accuracy: list[float], rounds: list[int], tuned: bool = False) -> Any:
    """A method with its final accuracy from these rounds on, and half of it before."""
    curves = [
        [[0, 0.1, 0, 0.0], [10, end / 2 if at > 10 else end, 100, 1.0], [20, end, 200, 2.0]]
        for end, at in zip(accuracy, rounds, strict=True)
    ]
    bill = {"trials": 4, "rounds": 80, "bits": 800, "seconds": 8.0} if tuned else {}
    return {
        "method": name,
        "name": name.partition(":")[0],
        "tuned": tuned,
        "chosen": {"eta": 0.1, "decay": "linear"} if tuned else {},
        "bill": bill or {"trials": 0, "rounds": 0, "bits": 0, "seconds": 0.0},
        "accuracy": accuracy,
        "states": ["done" if end else "diverged" for end in accuracy],
        "curves": curves,
    }


def task(name: str, *methods: Any, held_out: bool = False, kind: str = "synchronous") -> Any:
    return {
        **{"task": name, "kind": kind, "held_out": held_out, "words": "small", "rounds": 20},
        **{"seeds": [0, 1], "start": 0.1, "methods": list(methods)},
    }


AHEAD = task(
    "easy",
    method("polarfl", [0.9, 0.92], [10, 10]),
    method("padamfed", [0.5, 0.5], [20, 20]),
    method("fedavg", [0.8, 0.84], [20, 20], tuned=True),
    method("fedadam", [0.7, 0.9], [20, 20], tuned=True),
)
BEHIND = task(
    "hard",
    method("polarfl", [0.6, 0.6], [20, 20]),
    method("fedavg", [0.8, 0.82], [20, 20], tuned=True),
    held_out=True,
)


def result(*tasks: Any) -> dict[str, Any]:
    return {"scale": "small", "seeds": [0, 1], "trials": 4, "tasks": list(tasks)}


def test_the_best_tuned_method_sets_the_target_by_its_mean() -> None:
    assert score.best_tuned(AHEAD)["method"] == "fedavg"
    assert score.target_of(AHEAD) == pytest.approx(0.82)


def test_costs_are_counted_to_the_target_without_and_with_the_search() -> None:
    found = {each.method: each for each in score.scores(AHEAD)}
    assert found["polarfl"].cost == (10, 100, 1.0) == found["polarfl"].whole_cost
    assert found["padamfed"].cost == (math.inf,) * 3
    assert found["fedavg"].cost == (20, 200, 2.0)
    assert found["fedavg"].whole_cost == (100, 1000, 10.0)
    assert found["fedavg"].trials == 4
    (ours, _) = score.scores(BEHIND)
    assert ours.cost.rounds == math.inf


def test_a_diverged_seed_counts_as_0_in_the_mean() -> None:
    half = method("fedavg", [0.8, 0.8], [10, 10], tuned=True)
    half["curves"][1] = half["curves"][1][:1]
    assert score.cost_to(half, 0.4).rounds == 10
    assert score.cost_to(half, 0.5).rounds == math.inf


def test_a_standing_is_level_within_a_standard_error() -> None:
    ahead, behind = score.standing(AHEAD), score.standing(BEHIND)
    assert ahead is not None
    assert behind is not None
    assert (ahead.word, behind.word) == ("ahead", "behind")
    assert ahead.ahead == pytest.approx(0.09)
    close = task(
        "close",
        method("polarfl", [0.8, 0.9], [20, 20]),
        method("fedavg", [0.82, 0.86], [20, 20], tuned=True),
    )
    level = score.standing(close)
    assert level is not None
    assert (level.word, level.error > level.ahead > 0) == ("level", True)
    assert score.standing(task("alone", method("polarfl", [0.8], [10]))) is None


def test_profiles_count_shares_of_tasks() -> None:
    errors = score.error_profile([AHEAD, BEHIND])
    assert errors["polarfl"][0] == 0.5  # the lowest error in one task of two
    assert errors["padamfed"][-1] == 0  # never within four times; one task it did not run
    assert errors["fedavg"][-1] == 1
    rounds = score.round_profile([AHEAD, BEHIND])
    assert rounds["polarfl"][0] == 0.5
    assert rounds["fedavg"][0] == 0.5  # where PolarFL never reaches the target
    assert rounds["fedavg"][-1] == 1  # (20 + 80) / 10 times the rounds
    late = task("late", *AHEAD["methods"], kind="late")
    assert score.error_profile([AHEAD, late]) == score.error_profile([AHEAD])


def test_the_headline_names_the_tasks_where_it_is_behind() -> None:
    text = page.headline(result(AHEAD, BEHIND))
    assert "1 development tasks PolarFL, untuned, is ahead of the best tuned method on 1;" in text
    assert "is behind the best tuned method on 1 (hard -0.210); mean difference" in text
    assert "on 1 of 2 tasks" in text
    both = task("both", *BEHIND["methods"])
    text = page.headline(result(AHEAD, both))
    assert "is ahead of the best tuned method on 1 and behind on 1 (both -0.210); mean" in text


def test_a_diverged_run_is_named() -> None:
    broken = task(
        "broken",
        method("polarfl", [0.9, 0.9], [10, 10]),
        method("fedavg", [0.8, 0.0], [20, 20], tuned=True),
    )
    assert "0.400 ± 0.566, 1 diverged" in page.methods_table(broken)


def test_the_page_has_every_method_and_links_its_pictures(tmp_path: Path) -> None:
    source = tmp_path / "runs"
    source.mkdir()
    folder.file_of(source, "small").write_text(json.dumps(result(AHEAD, BEHIND)))
    written, summary = folder.publish(source, tmp_path / "challenge.md")
    text = written.read_text()
    for name in ("PolarFL", "PAdaMFed", "FedAvg", "FedAdam", "held-out", "eta 0.1, decay linear"):
        assert name in text
    for picture in ("evidence/challenge-small.png", "evidence/challenge-profiles-small.png"):
        assert f"]({picture})" in text
        assert f"]({picture})" in summary.read_text()
        assert (tmp_path / picture).stat().st_size > 10_000
    assert folder.read(tmp_path / "evidence", "small") == result(AHEAD, BEHIND)


def test_the_page_can_be_written_again_from_the_published_results(tmp_path: Path) -> None:
    (tmp_path / "evidence").mkdir()
    text = json.dumps(result(AHEAD, BEHIND))
    folder.file_of(tmp_path / "evidence", "small").write_text(text)
    written, _ = folder.publish(tmp_path / "no-runs", tmp_path / "challenge.md")
    assert "PolarFL" in written.read_text()
    assert folder.file_of(tmp_path / "evidence", "small").read_text() == text
