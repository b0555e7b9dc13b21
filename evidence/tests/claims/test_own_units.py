"""Steps in the model's own unit of length: the twins, and a claim's verdict with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evidence.tests.claims.test_claims import FLAT, SMOKE, SPREAD, everywhere, method
from tests.one_process import in_one_process
from tunefree.core import System, bind
from tunefree.data import sources
from tunefree.derive import named_objective
from tunefree.methods import registry
from tunefree.methods.padamfed import PAdaMFed
from tunefree.search.batch import PlannedRun
from tunefree_evidence.claims import checks, own_units
from tunefree_evidence.claims.checks import Table
from tunefree_evidence.claims.evidence import page
from tunefree_evidence.claims.folder import read, save
from tunefree_evidence.claims.own_units import OwnUnits, has_twin
from tunefree_evidence.claims.plans import Failures, Key, Order, Plans, union
from tunefree_evidence.claims.rows import row_of
from tunefree_evidence.claims.verdicts import above, decide
from tunefree_evidence.cli import main

LATE = dict.fromkeys(checks.LATE_BASELINES, 0.5)
FAILS = everywhere(["late-1"], LATE | {"adamasfl": 0.4})


def units(folder: Path, *claims: int, scale: str = "small") -> OwnUnits:
    order = Order(claims, scale, folder, own_units=True)  # type: ignore[arg-type]
    return OwnUnits(Plans(order, union(claims)))


def test_a_twin_has_its_formulas_steps_times_the_norm_of_its_own_first_model(
    tmp_path: Path,
) -> None:
    data = sources.load("digits")
    first, second = units(tmp_path, 10, scale="smoke").twins("emnist-iid", "padamfed")
    theory = bind(PAdaMFed(), System(N=10, S=2, K=2, T=20))
    for run in (first, second):
        r = float(named_objective(run.settings, data).theta0.norm())
        twin = registry.configure(run.settings, run.settings.system, None)
        assert isinstance(twin, PAdaMFed)
        assert (twin.eta / theory.eta, twin.gamma / theory.gamma) == pytest.approx((r, r), 1e-5)
        assert twin.beta == theory.beta
        assert run.settings.explicit_steps
        assert run.label == "padamfed, own units"
    assert first.settings.option != second.settings.option
    assert (first.settings.seed, second.settings.seed) == (0, 1)


def test_only_steps_from_theorems_have_a_unit_to_be_given() -> None:
    assert all(has_twin(10, a) for a in ("padamfed", checks.VR_STORM, checks.VR_EMA))
    assert all(has_twin(29, a) for a in ("parfrefl", checks.TOP_5, checks.CHANGING))
    assert has_twin(37, "adamasfl")
    assert not any(has_twin(10, a) for a in (*checks.BASELINES, "scaffold_norm", checks.SCAFCOM_5))
    assert not any(
        has_twin(claim, method) for claim in (14, 15, 33, 34) for _, method in union([claim])
    )
    assert not has_twin(24, "parfrefl")


@pytest.mark.parametrize(
    ("accuracy", "word", "reason"),
    [
        (0.6, "holds", "the step sizes: in the model's own unit of length the claim holds"),
        (
            0.45,
            "does not hold",
            "not the step sizes alone: in the model's own unit of length the claim still",
        ),
        (0.5, "not decided", "not decided"),
    ],
)
def test_the_claim_is_decided_again_with_twins_in_the_methods_places(
    accuracy: float, word: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[Key, list[PlannedRun]] = {}

    def run_planned(planned: dict[Key, list[PlannedRun]], workers: int) -> tuple[Table, Failures]:
        asked.update(planned)
        seeds = SPREAD if word == "not decided" else FLAT
        return {("late-1", "adamasfl"): method(accuracy, seeds)}, []

    monkeypatch.setattr(own_units, "run_planned", run_planned)
    monkeypatch.setattr(own_units, "lengths", lambda *_: {0: 2.0, 1: 3.0, 2: 4.0})
    found = units(tmp_path, 37).decide(37, FAILS)
    assert found["own_units"]["verdict"] == word
    assert found["reason"].startswith(reason)
    assert list(asked) == [("late-1", "adamasfl")]
    ends = {row["method"]: row["accuracy"] for row in found["own_units"]["finals"]}
    assert ends["adamasfl, own units"] == accuracy
    assert ends["fedbuff"] == 0.5
    assert "adamasfl" not in ends


def test_a_claim_of_given_steps_alone_has_no_verdict_in_own_units(tmp_path: Path) -> None:
    table = {key: method(0.5) for key in union([14])}
    assert units(tmp_path, 14).decide(14, table) == {}


def test_only_a_claim_that_does_not_hold_is_decided_in_own_units(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_one_process(monkeypatch)
    asked = [*SMOKE, "20", "24", "--out", str(tmp_path)]
    assert main([*asked, "--own-units"]) == 0
    twentieth, wire = json.loads(capsys.readouterr().out)[::-1]
    assert any(part["holds"] is False for part in twentieth["parts"])
    assert twentieth["own_units"]["verdict"] == twentieth["reason"] == "not decided"  # smoke
    assert {row["method"] for row in twentieth["own_units"]["finals"]} == {
        *("padamfed, own units", "scaffold", "scaffold_norm")
    }
    theirs = {part["what"]: part["value"] for part in twentieth["own_units"]["parts"]}
    assert theirs != {part["what"]: part["value"] for part in twentieth["parts"]}
    assert "own_units" not in wire
    files = sorted((tmp_path / "smoke").glob("padamfed_own_units-*.sqlite"))
    assert len(files) == 2

    stored = read(tmp_path)
    assert main(asked) == 0  # a verdict in own units is not lost by deciding the same again
    assert "own_units" not in capsys.readouterr().out
    assert read(tmp_path) == stored


def test_other_numbers_drop_an_older_verdict_in_own_units(tmp_path: Path) -> None:
    order = Order([37], "small", tmp_path)
    own = {"own_units": {"verdict": "not decided"}, "reason": "not decided"}
    row = row_of(order, 37, decide([above("lead", [-0.1, -0.2], 0)]), [0, 1])
    save(tmp_path, {**row, **own})
    save(tmp_path, row)
    assert read(tmp_path)[0]["reason"] == "not decided"
    save(tmp_path, row_of(order, 37, decide([above("lead", [-0.1, -0.3], 0)]), [0, 1]))
    assert not {"own_units", "reason"} & read(tmp_path)[0].keys()


def test_the_page_shows_the_verdict_in_own_units_under_its_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_units, "lengths", lambda *_: {0: 2.0, 1: 3.0, 2: 4.0})
    monkeypatch.setattr(
        own_units, "run_planned", lambda *_: ({("late-1", "adamasfl"): method(0.6)}, Failures())
    )
    verdict = checks.late_without_tuning(FAILS)
    row = row_of(Order([37], "small", tmp_path), 37, verdict, [0, 1])
    text = page([row | units(tmp_path, 37).decide(37, FAILS)])
    assert (
        "**holds** with eta and gamma of the tuning-free methods multiplied by ||theta0||; repeat "
        "it with `tunefree-evidence claims 37 --scale small --own-units`. The reason is the step "
        "sizes: in the model's own unit of length the claim holds." in text
    )
    assert text.count("| lead of adamasfl over fedbuff | 0.1") == 1
    assert text.count("| lead of adamasfl over fedbuff | -0.1") == 1
    assert "| adamasfl, own units | 0.600 ± 0.001 |" in text
