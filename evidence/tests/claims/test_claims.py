"""Claims: the checks on made-up curves, and the command at smoke size."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tunefree.errors import ConfigError
from tunefree_evidence.claims import checks, figures, recipes
from tunefree_evidence.claims.checks import TOP_5, TOP_10, Check, Curve
from tunefree_evidence.claims.claims import CLAIMS, FIGURES, SENTENCES, STUDIES, choose, study_of
from tunefree_evidence.claims.evidence import GAPS, page
from tunefree_evidence.claims.folder import challenge, pictures, read, save
from tunefree_evidence.claims.plans import Order, Plans, union
from tunefree_evidence.claims.recipes import SCALES, methods_at
from tunefree_evidence.claims.rows import finals, row_of
from tunefree_evidence.claims.sizes import describe
from tunefree_evidence.claims.studies import complete_figures, draw
from tunefree_evidence.claims.theory import Measurement
from tunefree_evidence.claims.verdicts import Verdict, above, below, decide, exact, within
from tunefree_evidence.cli import main
from tunefree_evidence.figures import panels as plots
from tunefree_evidence.figures.panels import Panel

SMOKE = ["claims", "--scale", "smoke", "--workers", "1", "--format", "json"]
T = 10
FLAT, SPREAD = (0.0, 0.001, -0.001), (0.0, 0.2, -0.2)  # what seeds add to an accuracy
Made = dict[tuple[str, str], dict[int, Curve]]


def curve(accuracy: float, bits: float = 1.0, loss: float = 0.0) -> Curve:
    """Grows from nothing to its accuracy in equal parts; sends so many bits a round."""
    opening = {
        "t": -1.0,
        "bits_up": 100.0,
        "bits_down": 100.0,
        "clients": 0.0,
        "virtual_seconds": 0.0,
    }
    rows = [
        {
            **{"t": float(t), "accuracy": accuracy * (t + 1) / T, "clients": 1.0},
            **{"bits_up": 100 + bits * (t + 1), "bits_down": 100 + bits * (t + 1)},
            **{"loss": loss or 1 - accuracy, "train_loss": loss or 1 - accuracy},
            **{"grad_norm": 1 - accuracy, "virtual_seconds": float(t + 1), "tau_mean": 1.0},
        }
        for t in range(T)
    ]
    return Curve([opening, *rows], T)


def method(accuracy: float, seeds: Sequence[float] = FLAT, bits: float = 1.0) -> dict[int, Curve]:
    return {seed: curve(accuracy + more, bits) for seed, more in enumerate(seeds)}


def everywhere(places: Sequence[str], accuracy: Mapping[str, float]) -> Made:
    return {(where, name): method(value) for where in places for name, value in accuracy.items()}


def test_a_part_is_decided_by_its_standard_error() -> None:
    assert above("", [0.1, 0.2, 0.3], 0.1).holds is True
    assert above("", [0.1, 0.2, 0.3], 0.3).holds is False
    assert above("", [0.1, 0.2, 0.3], 0.15).holds is None  # the error is 0.058
    assert below("", [0.1, 0.2, 0.3], 0.3).holds is True
    assert above("", [0.9], 0.1).holds is None  # one seed has no spread
    assert above("", [], 0.1).holds is None
    assert [part.holds for part in within("", [0.02, 0.021], 0.01)] == [True, False]


def test_a_claim_needs_all_parts_and_fails_by_one() -> None:
    good, bad, close = exact("a", 1, 1), exact("b", 2, 1), above("c", [], 0)
    assert decide([good, good]).word == "holds"
    assert decide([good, close]).word == "not decided"
    assert decide([good, close, bad]).word == "does not hold"
    assert decide([]).word == "not decided"
    assert "b: 2, must be exactly 1" in decide([good, bad]).why


EMNIST = ("emnist-iid", "emnist-skew")
WORSE = {"fedavg": 0.6, "scaffold": 0.62, "scaffold_m": 0.64}
FAR = dict.fromkeys(WORSE, 0.3)
BETTER = {"padamfed": 0.8, "padamfed_vr": 0.82, "padamfed_vr:momentum=ema": 0.81}
RANGE = CLAIMS[14].needs["emnist-iid"]
LATE = dict.fromkeys(checks.LATE_BASELINES, 0.5)


def lr(name: str, step: str, rates: Sequence[float], values: Sequence[float]) -> dict[str, float]:
    return dict(zip(methods_at(name, step, rates), values, strict=True))


def sweep_of(wide: float, narrow: float, last: float = 0.1) -> Made:
    """PAdaMFed's accuracies go down to `wide`, the baselines' to `narrow`."""
    fall, rates = (0.8, 0.8, 0.8), checks.WIDE_RATES
    values = {step: lr("padamfed", step, rates, (*fall, 0.8, wide)) for step in ("gamma", "eta")}
    made = everywhere(EMNIST, values["gamma"] | values["eta"])
    for name in checks.BASELINES:
        made |= everywhere(EMNIST, lr(name, "eta", rates, (*fall, narrow, last)))
    return made


def image_sweep(ours: float, theirs: float) -> Made:
    rates, made = checks.IMAGE_RATES, Made()
    for step in ("gamma", "eta"):
        made |= everywhere(
            tuple(checks.MOST_LOST), lr("parfrefl", step, rates, (0.9, 0.9, 0.9, ours))
        )
    for name in ("fedavg", checks.SCAFCOM_5):
        made |= everywhere(tuple(checks.MOST_LOST), lr(name, "eta", rates, (0.9, 0.9, 0.9, theirs)))
    return made


def bits_of(share: float) -> Made:
    made = everywhere(checks.PICTURES, {"parfrefl": 0.9})
    return made | {(where, TOP_5): method(0.9, bits=share) for where in checks.PICTURES}


CASES: list[tuple[int, Made, Made]] = [  # claim, a table on which it holds, one on which not
    (10, everywhere(EMNIST, BETTER | WORSE), everywhere(EMNIST, BETTER | WORSE | {"fedavg": 0.9})),
    (11, everywhere(EMNIST, BETTER | WORSE), everywhere(EMNIST, BETTER | {"scaffold_m": 0.9})),
    (12, everywhere(EMNIST, BETTER), everywhere(EMNIST, BETTER | {"padamfed_vr": 0.7})),
    (
        13,
        everywhere(EMNIST[:1], BETTER | WORSE) | everywhere(EMNIST[1:], BETTER | FAR),
        everywhere(EMNIST[1:], BETTER | WORSE) | everywhere(EMNIST[:1], BETTER | FAR),
    ),
    (
        14,
        everywhere(EMNIST, dict.fromkeys(RANGE, 0.81)),
        everywhere(EMNIST, dict.fromkeys(RANGE, 0.7)),
    ),
    (16, sweep_of(0.8, 0.2), sweep_of(0.1, 0.8, 0.8)),
    (
        20,
        everywhere(["ablation"], {"padamfed": 0.8, "scaffold": 0.7, "scaffold_norm": 0.6}),
        everywhere(["ablation"], {"padamfed": 0.8, "scaffold": 0.5, "scaffold_norm": 0.6}),
    ),
    (
        26,
        everywhere(checks.PICTURES, {"parfrefl": 0.9, "padamfed": 0.9, "fedavg": 0.8}),
        everywhere(checks.PICTURES, {"parfrefl": 0.9, "padamfed": 0.7, "fedavg": 0.8}),
    ),
    (
        27,
        everywhere(("mnist-iid", "mnist-skew"), {"parfrefl": 0.9, TOP_10: 0.9, TOP_5: 0.895}),
        everywhere(("mnist-iid", "mnist-skew"), {"parfrefl": 0.9, TOP_10: 0.9, TOP_5: 0.88}),
    ),
    (30, bits_of(0.05), bits_of(0.5)),
    (33, image_sweep(0.88, 0.5), image_sweep(0.5, 0.5)),
    (
        37,
        everywhere(["late-1"], LATE | {"adamasfl": 0.5}),
        everywhere(["late-1"], LATE | {"adamasfl": 0.4}),
    ),
    (
        38,
        everywhere(["late-0"], LATE | {"adamasfl": 0.5})
        | everywhere(["late-3"], dict.fromkeys(LATE, 0.4) | {"adamasfl": 0.49}),
        everywhere(["late-0"], LATE | {"adamasfl": 0.5})
        | everywhere(["late-3"], LATE | {"adamasfl": 0.3}),
    ),
]


@pytest.mark.parametrize(("claim", "holds", "fails"), CASES, ids=[str(c) for c, *_ in CASES])
def test_made_up_curves_give_all_three_verdicts(claim: int, holds: Made, fails: Made) -> None:
    check: Check = CLAIMS[claim].check("small")
    assert check(holds).word == "holds", check(holds).why
    assert check(fails).word == "does not hold"
    assert check({}).word == "not decided"


def test_a_diverged_run_of_ours_counts_against_a_claim() -> None:
    methods = ("padamfed", "padamfed_vr", "scaffold_m", "fedavg", "scaffold")
    low, high = (
        {seed: Curve([{"t": T - 1, "grad_norm": norm * (1 + seed / 100)}], T) for seed in range(3)}
        for norm in (0.1, 1.0)
    )
    table = {
        (f"cifar-{kind}", name): low if name in methods[:3] else high
        for kind in ("iid", "skew")
        for name in methods
    }
    assert checks.momentum_flattens(table).word == "holds"
    lost = {seed: curve._replace(diverged=True) for seed, curve in low.items()}
    table["cifar-iid", "padamfed"] = lost
    assert checks.momentum_flattens(table).word == "does not hold"


def test_a_number_that_is_not_there_is_valid_json(tmp_path: Path) -> None:
    verdict = decide([above("gone", [], 0.0)])
    row = row_of(Order([24], "small", tmp_path), 24, verdict, [])
    text = json.dumps(row, allow_nan=False)
    assert json.loads(text)["parts"][0]["value"] is None
    assert "| gone | missing | above 0 | not decided |" in page([row])


def test_seeds_that_disagree_decide_nothing() -> None:
    made = everywhere(["ablation"], {"padamfed": 0.8, "scaffold": 0.7, "scaffold_norm": 0.69})
    made["ablation", "scaffold"] = method(0.7, SPREAD)
    assert checks.momentum_is_needed(made).word == "not decided"


def test_iid_must_be_equal_and_skewed_better() -> None:
    check = checks.parfrefl_beside_padamfed
    iid, skew = ("mnist-iid", "fashion-iid"), ("mnist-skew", "fashion-skew")
    same = everywhere(iid, {"parfrefl": 0.9, "padamfed": 0.899})
    assert check(same | everywhere(skew, {"parfrefl": 0.8, "padamfed": 0.7})).word == "holds"
    assert (
        check(same | everywhere(skew, {"parfrefl": 0.7, "padamfed": 0.8})).word == "does not hold"
    )
    apart = everywhere(iid, {"parfrefl": 0.9, "padamfed": 0.8})
    assert (
        check(apart | everywhere(skew, {"parfrefl": 0.8, "padamfed": 0.7})).word == "does not hold"
    )


def test_messages_are_measured_without_the_opening() -> None:
    table = {
        ("wire", checks.UNIT): method(0.5, [0.0], bits=32.0),
        ("wire", "parfrefl"): method(0.5, [0.0], bits=32.0),
        ("wire", "padamfed"): method(0.5, [0.0], bits=64.0),
    }
    assert checks.sends("parfrefl", "padamfed")(table).word == "holds"
    table["wire", "parfrefl"] = method(0.5, [0.0], bits=64.0)
    assert checks.sends("parfrefl", "padamfed")(table).word == "does not hold"
    assert checks.sends("parfrefl", "padamfed", "padamfed_vr")({}).word == "not decided"


def test_losses_must_agree_where_both_are_clear() -> None:
    made = everywhere(["mnist-iid"], {"parfrefl": 0.9, "fedavg": 0.7})
    assert checks.loss_follows(made).word == "holds"
    made["mnist-iid", "parfrefl"] = {seed: curve(0.9, loss=5 + seed / 100) for seed in range(3)}
    assert checks.loss_follows(made).word == "does not hold"


def test_staleness_is_what_the_clock_must_give() -> None:
    table = {(f"late-{place}", "adamasfl"): method(0.5) for place in (0, 1)}  # tau is 1 in all
    assert checks.staleness_follows((10,), 5)(table).word == "holds"
    assert checks.staleness_follows((20,), 5)(table).word == "does not hold"
    assert checks.staleness_follows((10, 11), 5)(table).word == "does not hold"  # no faster
    assert checks.staleness_follows((10, 11, 12), 5)({}).word == "not decided"


def test_a_diverged_run_has_no_accuracy() -> None:
    assert checks.late_score(curve(0.9)._replace(diverged=True)) == 0
    assert checks.late_score(curve(0.9)) == pytest.approx(0.9)


def test_claims_are_chosen_by_number_range_figure_and_study() -> None:
    assert choose(["all"]) == list(range(10, 50)) == sorted(SENTENCES)
    assert choose(["37-39", "24"]) == [24, 37, 38, 39]
    assert choose(["late"]) == [37, 38, 39] == choose(["adamasfl-rounds", "adamasfl-staleness"])
    assert {study_of(claim) for claim in SENTENCES} == set(STUDIES)
    assert sorted(claim for claims in FIGURES.values() for claim in claims) == list(range(10, 50))
    for wrong in ("9", "50", "12-60", "parfrefl-round"):
        with pytest.raises(ConfigError, match=r"not known"):
            choose([wrong])


@pytest.mark.parametrize("scale", SCALES)
def test_every_claim_can_be_planned_at_every_size(scale: recipes.Scale, tmp_path: Path) -> None:
    plans = Plans(Order([], scale, tmp_path), union(CLAIMS))
    assert len(plans.unfinished()) > 100
    assert {run.settings.seed for run in plans.trials()}.isdisjoint(plans.order.run_seeds)
    assert all(plans.search(*key).points for key in plans.searches)
    assert plans.configure("late-1", "defedavg_niid").dispatch == "queue"
    assert plans.configure("late-1", "fedbuff").dispatch == "flush"


def test_sizes_are_described_from_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert describe("images", "small") == (
        "N = 50, S = 5, K = 5, batch 20, 150 rounds; mnist and fashion-mnist, partition iid and "
        "dirichlet:0.1; model cnn_mnist; seeds 0, 1, 2, at given step sizes 0, 1"
    )
    assert "5, 10, 25, 40 jobs in flight; seeds 0, 1" in describe("late", "small")
    assert describe("theory", "paper", (7, 8)).endswith(
        "16,384 rounds on synthetic problems; seeds 7, 8"
    )
    assert "imdb (length 60), " in describe("imdb", "small")
    monkeypatch.setitem(recipes.SMOKE, "rounds", 21)
    assert all("21 rounds" in describe(s, "smoke") for s in STUDIES if s not in ("wire", "theory"))
    assert all(describe(study, scale) for study in STUDIES for scale in SCALES)


def test_runs_are_shared_between_claims(tmp_path: Path) -> None:
    apart = [Plans(Order([c], "small", tmp_path), union([c])).runs({}) for c in (25, 27)]
    key = ("mnist-skew", "parfrefl")
    assert apart[0][key] == apart[1][key]
    assert len({run.path for run in apart[0][key]}) == 3


def test_verdicts_replace_those_of_the_same_size_only(tmp_path: Path) -> None:
    small, smoke = (Order([24], scale, tmp_path) for scale in ("small", "smoke"))
    save(tmp_path, row_of(small, 24, Verdict("holds", {"up": 1.0}, "yes"), [0]))
    save(tmp_path, row_of(smoke, 24, Verdict("holds", {}, "yes"), [0]))
    save(tmp_path, row_of(small, 24, Verdict("does not hold", {"up": 2.0}, "no"), [0, 1]))
    rows = read(tmp_path)
    assert [(r["scale"], r["verdict"]) for r in rows] == [
        ("smoke", "not decided"),
        ("small", "does not hold"),
    ]
    text = page(rows)
    assert "**does not hold** at `small` size, seeds 0, 1; repeat it with" in text
    assert "- At `small` size: 1 does not hold, 39 not run.\n" in text
    assert "- At `smoke` size: 1 runs, 39 not run.\n" in text
    assert "one model up, one down. | runs | does not hold | not run |" in text
    assert "| [24](#claim-24) | ParFreFL sends" in text
    assert "`tunefree-evidence claims 24 --scale small`" in text
    assert text.count("Not run.") == 39
    assert all(gap in text for gap in GAPS)
    assert len(re.findall(r"^### Claim \d+$", text, flags=re.MULTILINE)) == 40


def test_the_command_at_smoke_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = [*SMOKE, "24", "32", "--out", str(tmp_path)]
    assert main(asked) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["claim"]: row["verdict"] for row in rows} == dict.fromkeys((24, 32), "not decided")
    assert rows == read(tmp_path)
    assert rows[0]["numbers"]["parfrefl models up"] == 1
    assert rows[0]["numbers"]["padamfed models up"] == 2
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "smoke").glob("*.sqlite")}
    assert main(asked) == 0  # everything has run
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert json.loads(capsys.readouterr().out) == rows
    left = Plans(Order([24], "smoke", tmp_path), union([24])).unfinished()
    assert left == []
    assert len(Plans(Order([24], "smoke", tmp_path / "new"), union([24])).unfinished()) == 3


def test_runs_at_one_step_size_of_many_are_marked(tmp_path: Path) -> None:
    runs = Plans(Order([14], "smoke", tmp_path), union([14])).runs({})
    facts = {run.facts["sweep"]["over"] for each in runs.values() for run in each}  # type: ignore[index]
    assert facts == {"eta", "gamma"}
    run = runs["emnist-iid", "padamfed:gamma=0.003,explicit_steps=true"][0]
    theory = (2 * 2) ** 0.25 / 20**0.75
    assert run.facts["sweep"] == {"over": "gamma", "value": 0.003, "theory": pytest.approx(theory)}
    assert run.role == "sweep"


def test_evidence_grows_claim_by_claim(tmp_path: Path) -> None:
    """Published verdicts and pictures of other claims stay."""
    out, first, second = tmp_path / "evidence.md", tmp_path / "a", tmp_path / "b"
    for folder, claim, figure in ((first, 24, "parfrefl-bits"), (second, 37, "adamasfl-rounds")):
        parts = [above("lead", [0.1, 0.2], 0.0), above("gone", [], 0.0), exact("size", 2, 1)]
        save(folder, row_of(Order([claim], "small", folder), claim, decide(parts), [0, 1]))
        panels = [Panel("", {"method": {0.0: [0.1], 1.0: [0.2]}}, "x", "y")]
        plots.save(panels, folder / "pictures" / f"{figure}-small.png")
        assert main(["claims", "evidence", "--out", str(folder), "-o", str(out)]) == 0
    text = out.read_text(encoding="utf-8")
    assert [row["claim"] for row in read(tmp_path / "evidence")] == [24, 37]
    for figure in ("parfrefl-bits", "adamasfl-rounds"):
        assert f"](evidence/{figure}-small.png)" in text
        assert (tmp_path / "evidence" / f"{figure}-small.png").read_bytes()[:4] == b"\x89PNG"
    assert text.count("| lead | 0.15 ± 0.05 | above 0 | yes |") == 2
    assert text.count("| gone | missing | above 0 | not decided |") == 2
    assert text.count("| size | 2 | exactly 1 | no |") == 2
    assert f"- `small`: {describe('late', 'small')}\n" in text
    assert f"- `paper`, not run: {describe('late', 'paper')}\n" in text
    assert "## The challenge" not in text
    (tmp_path / "evidence" / "challenge.md").write_text("As *written*.\n\n| a |\n|---|\n")
    assert main(["claims", "evidence", "--out", str(second), "-o", str(out)]) == 0
    text = out.read_text(encoding="utf-8")
    assert "## The challenge\n\nAs *written*.\n\n| a |\n|---|\n\n## The claims\n" in text


def test_the_page_is_written_where_the_docs_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    order = Order([24], "small", tmp_path)
    row = row_of(order, 24, decide([exact("size", 1, 1)]), [0])
    save(tmp_path / "found", {key: row[key] for key in row if key != "played"})  # an older row
    assert main(["claims", "evidence", "--out", "found"]) == 0
    text = Path("docs/evidence.md").read_text(encoding="utf-8")
    assert f"- `small`: {describe('wire', 'small')}\n" in text
    assert [row["claim"] for row in read(Path("docs/evidence"))] == [24]


def test_the_published_page_is_what_its_verdicts_give() -> None:
    docs = Path(__file__).parents[3] / "docs"
    links = {name: f"evidence/{path.name}" for name, path in pictures(docs / "evidence").items()}
    text = page(read(docs / "evidence"), links, challenge(docs / "evidence"))
    assert text == (docs / "evidence.md").read_text(encoding="utf-8")


def test_every_figure_but_those_of_sizes_and_theorems_has_panels(tmp_path: Path) -> None:
    theorems = {name for name in FIGURES if name.endswith("-theory")}
    assert set(figures.KINDS) == set(FIGURES) - theorems - {"wire"}
    for name, kind in figures.KINDS.items():
        table = {key: method(0.5) for key in union(FIGURES[name])}
        panels = kind(table, "small")
        drawn = {label for panel in panels for label in panel.lines}
        steps = name.endswith("-steps")
        assert drawn, name
        assert all((", eta" in label or ", gamma" in label) == steps for label in drawn)
    for name in ("parfrefl-bits", "parfrefl-steps", "adamasfl-staleness"):
        table = {key: method(0.5) for key in union(FIGURES[name])}
        path = tmp_path / f"{name}.png"
        plots.save(figures.KINDS[name](table, "small"), path)
        assert path.stat().st_size > 5000
    assert set(complete_figures([25, 26, 27])) == {"parfrefl-rounds"}


def test_a_picture_that_cannot_be_drawn_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    draw([], tmp_path / "late-small.png", logged.append)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    draw([Panel("", {"method": {0.0: [0.1]}}, "x", "y")], tmp_path / "a.png", logged.append)
    assert logged[0] == "  no picture of late-small: no runs"
    assert "no picture: pictures need matplotlib, which is not installed; pip install" in logged[1]


def test_a_picture_shows_means_of_seeds_and_which_diverged() -> None:
    lost = method(0.5)[0]._replace(diverged=True)
    table = {("mnist-iid", "parfrefl"): method(0.8), ("mnist-iid", "fedavg"): {0: lost, 1: lost}}
    (panel,) = figures.by_round(table, "small")
    assert panel.lines["parfrefl"][T] == pytest.approx([0.8, 0.801, 0.799])
    assert panel.note == "fedavg: 2 of 2 diverged"
    (bits,) = figures.by_round(
        {("mnist-iid", "parfrefl"): {0: method(0.8, bits=2.0)[0], 1: method(0.6, bits=4.0)[1]}},
        "small",
        x="bits_up",
    )
    line = bits.lines["parfrefl"]
    assert [len(values) for values in line.values()] == [2] * len(line)  # seeds meet by round
    rows = {row["method"]: row for row in finals(table)}
    assert rows["parfrefl"]["accuracy"] == 0.8
    assert rows["parfrefl"]["spread"] == 0.001
    assert (rows["fedavg"]["accuracy"], rows["fedavg"]["diverged"]) == (0.0, 2)


def test_laws_along_the_same_constant_share_a_panel() -> None:
    laws = [
        Measurement(f"{name} against {x}", -0.25, [1, 16], {0: [4.0, 2.0], 1: [4.0, 2.0]})
        for name in ("A", "B")
        for x in "TS"
    ]
    panels = figures.of_laws(laws)
    assert [(panel.x, list(panel.lines)) for panel in panels] == [
        ("T", ["A", "B"]),
        ("S", ["A", "B"]),
    ]
    assert panels[0].slopes == {"A": -0.25, "B": -0.25}
    (legend,) = plots.draw(panels).legends
    assert [text.get_text() for text in legend.get_texts()] == ["A", "the theorem's slope", "B"]


def test_a_study_that_fails_is_reported_and_the_others_continue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(recipes.SMOKE, "batch_size", 0)
    (tmp_path / "smoke").mkdir()
    asked = [*SMOKE, "24", "40", "--out", str(tmp_path)]
    assert main(asked) == 1
    first, second = json.loads(capsys.readouterr().out)
    assert "batch_size" in first["why"]
    assert (first["seeds"], first["failures"]) == ([], 1)
    assert "one model up, one down. | fails | not run | not run |" in page(read(tmp_path))
    assert second["claim"] == 40
    assert second["seeds"] == [0, 1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["99"], "claims are 10 to 49"),
        (["parfrefl-bit"], "did you mean 'parfrefl-bits'"),
        (["24", "--seeds", "0", "100"], "--seeds 100 is the seed that methods are tuned with"),
        (["24", "--seeds", "1", "1"], "has the same seed twice"),
        (["24", "--out", __file__], f"--out '{__file__}' cannot be written"),
        (["24", "--workers", "-1"], "at least 0"),
        (["37-30"], "claims 37-30: write the smaller number first"),
        (["list", "24"], "`tunefree-evidence claims list` stands alone"),
        (["evidence", "--out", "nowhere", "-o", "nowhere/E.md"], "'nowhere' has no verdicts"),
    ],
)
def test_bad_usage(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", *words]) == 2
    assert said in capsys.readouterr().err


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "list", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["claim"] for row in rows] == list(range(10, 50))
