"""Verdicts that older versions stored are read in today's words, with the same numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tunefree_evidence.claims import older, theory
from tunefree_evidence.claims.claims import CLAIMS, SENTENCES, THEORY
from tunefree_evidence.claims.evidence import page
from tunefree_evidence.claims.folder import VERDICTS, read, save
from tunefree_evidence.claims.plans import union
from tunefree_evidence.claims.theory import Measurement
from tunefree_evidence.claims.verdicts import Verdict

from evidence.tests.claims.test_reproduce import method

PART = {"what": "accuracy adamasfl loses", "value": 0.1671, "error": 0.07, "limit": 0.02}
OLD: dict[str, Any] = {
    "claim": 38,
    "sentence": "As more clients work at once",
    "verdict": "does not hold",
    "parts": [PART | {"side": "below", "holds": False}],
    "numbers": {"accuracy adamasfl loses": 0.1671, "10 jobs out": 1.5},
    "why": "fails: accuracy adamasfl loses: 0.1671 ± 0.07, must be below 0.02",
    "seeds": [0, 1],
    "scale": "small",
    "played": "N = 50; 5, 10 jobs out at a time; seeds 0, 1, at written step sizes 0",
    "command": "tunefree reproduce 38 --scale small",
    "finals": [
        {"where": "late-1", "arm": "fadas", "accuracy": 0.8, "spread": 0.01, "diverged": 0},
        {"where": "late-0", "arm": "fadas", "accuracy": 0.9, "spread": 0.01, "diverged": 1},
    ],
    "tuned": {"late-1 fadas": "eta = 0.03, gamma = 0.003 in 7 trials, 1,050 rounds"},
}
OWN = {
    "own_units": {key: OLD[key] for key in ("verdict", "parts", "numbers", "why", "finals")},
    "reason": "not the steps alone: with them in the model's own unit it still does not hold",
}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "cifar-iid: padamfed ahead of the best baseline",
            "cifar-iid: lead of padamfed over the best baseline",
        ),
        ("adamasfl ahead of fedbuff", "lead of adamasfl over fedbuff"),
        (
            "imdb-iid: padamfed ahead of scaffold_m at 0.003",
            "imdb-iid: lead of padamfed over scaffold_m, at step size 0.003",
        ),
        (
            "emnist-iid: decades of padamfed gamma minus fedavg eta",
            "emnist-iid: decades of good step sizes, padamfed gamma minus fedavg eta",
        ),
        (
            "mnist-skew: how much more fedavg loses",
            "mnist-skew: best minus worst accuracy of fedavg over eta, minus that of parfrefl over "
            "gamma",
        ),
        ("how much more masfl loses", "how much more masfl loses to staleness than adamasfl"),
        (
            "10 jobs out: staleness minus 1, at most",
            "10 jobs in flight: mean staleness, distance from 1",
        ),
        (
            "AdaMasFL (12 jobs out) against T: slope, 95 %",
            "AdaMasFL (12 jobs in flight) against T: slope, 95 %",
        ),
        ("PAdaMFed-VR, ema moves by", "trajectory shift of PAdaMFed-VR, ema"),
    ],
)
def test_names_of_parts_and_numbers(old: str, new: str) -> None:
    assert older.name(old) == new


def verdicts() -> list[Verdict]:
    """One of each claim, on made-up curves."""
    made = [
        claim.check("small")({key: method(0.5) for key in union([number])})
        for number, claim in CLAIMS.items()
    ]
    for number in THEORY:
        found = [
            Measurement(law.label, law.power, list(law.cases), {0: [1.0] * len(law.cases)})
            for law in theory.laws(number, 64)
        ]
        made.append(theory.verdict(number, list(map(theory.relabelled, found))))
    return made


def test_names_of_this_version_stay() -> None:
    names = {name for verdict in verdicts() for name in verdict.numbers}
    assert len(names) > 150
    assert {name: older.name(name) for name in names} == {name: name for name in names}


def test_an_older_row_is_shown_and_stored_in_todays_words(tmp_path: Path) -> None:
    (tmp_path / VERDICTS).write_text(json.dumps([OLD | OWN]))
    (row,) = read(tmp_path)
    assert row["sentence"] == SENTENCES[38]
    assert list(row["numbers"].values()) == list(OLD["numbers"].values())
    assert row["why"] == (
        "fails: accuracy adamasfl loses to staleness: 0.1671 ± 0.07, must be below 0.02"
    )
    text = page([row])
    assert "- `small`: N = 50; 5, 10 jobs in flight; seeds 0, 1, at given step sizes 0\n" in text
    assert "- 10 jobs in flight: 1.5\n" in text
    assert (
        "| final accuracy | 5 jobs in flight | 10 jobs in flight |\n| --- | --- | --- |\n"
        "| fadas | 0.900 ± 0.010, 1 diverged | 0.800 ± 0.010 |\n" in text
    )
    assert "| tuned to | 10 jobs in flight |\n" in text
    assert "The reason is not the step sizes alone: in the model's own unit of length" in text
    assert text.count("| accuracy adamasfl loses to staleness | 0.1671 ± 0.07 |") == 2
    save(tmp_path, row)
    assert json.loads((tmp_path / VERDICTS).read_text()) == [row] == read(tmp_path)


def test_a_row_that_is_decided_again_keeps_its_older_verdict_in_own_units(tmp_path: Path) -> None:
    (tmp_path / VERDICTS).write_text(json.dumps([OLD | OWN]))
    save(tmp_path, older.today(OLD))  # the same, as this version writes it
    assert "own_units" in read(tmp_path)[0]


def test_numbers_along_a_law_share_a_line() -> None:
    numbers = {"A against T: slope, 95 %": "-1 to 0", "A against T, at 64": 0.5}
    row = older.today(OLD) | {"numbers": numbers | {"A against T, at 256": 0.25}}
    assert "- A against T: slope, 95 %: -1 to 0\n- A against T: 0.5 at 64, 0.25 at 256\n" in page(
        [row]
    )
