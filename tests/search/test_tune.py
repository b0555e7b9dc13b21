"""`tunefree tune`: scored on held-out samples, independent of timing, with its tuning bill."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.search.small import FLAGS, run_here, run_scripted, settings
from tests.variants import METHODS
from tunefree.cli import main
from tunefree.data import sources
from tunefree.data.samples import Partition, Samples, held_out
from tunefree.errors import ConfigError
from tunefree.record import Record
from tunefree.report.content import content
from tunefree.report.files import find
from tunefree.run.run import prepare
from tunefree.search import batch
from tunefree.search.tuning import (
    Search,
    Trial,
    TuningResult,
    declared_grid,
    next_value,
    on_held_out,
    search_all,
    tune,
)
from tunefree.settings import Settings

GRID = {"eta": (0.01, 0.03, 0.1, 0.3)}


@pytest.fixture(autouse=True)
def in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


Script = Callable[[Callable[[Settings], Sequence[float] | None]], None]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Trials that train nothing: a function gives their accuracies."""
    return lambda curve: monkeypatch.setattr(batch, "run_all", run_scripted(curve))


def eta(config: Settings) -> float:
    value = config.option["eta"]
    assert isinstance(value, float)
    return value


def best_at(peak: float) -> Callable[[Settings], Sequence[float]]:
    """Curves that are flat, and the higher the nearer eta is to the peak."""
    return lambda c: [0.9 - 0.1 * abs(math.log10(eta(c) / peak))] * 8


def tuned(grid: Any = GRID, name: str = "fedavg", **choices: Any) -> TuningResult:
    return tune(settings(name), grid, [1000], Path("x"), **choices)


def tried(result: TuningResult) -> list[float]:
    return sorted(eta_of(trial) for trial in result.trials)


def eta_of(trial: Trial) -> float:
    return float(dict(trial.point)["eta"])


def test_searches_side_by_side_find_what_each_finds_alone(script: Script) -> None:
    peaks = {"fedavg": 0.1, "scaffold": 3.0}  # the second is beyond its grid
    script(lambda c: best_at(peaks[c.algorithm])(c))
    searches = {name: Search(on_held_out(settings(name)), GRID, Path("together")) for name in peaks}
    search_all(list(searches.values()), [1000], budget=6)
    for name, search in searches.items():
        alone = tune(settings(name), GRID, [1000], Path(name), budget=6)
        found = search.result()
        assert found is not None
        assert (found.point, tried(found)) == (alone.point, tried(alone))
    assert [len(search.trials) for search in searches.values()] == [4, 6]


def test_a_choice_may_be_searched_beside_numbers(script: Script) -> None:
    script(lambda c: [(0.5 if c.decay == "none" else 0.6) - abs(eta(c) - 0.1)] * 8)
    result = tuned({"eta": (0.03, 0.1, 0.3), "decay": ("none", "linear")})
    assert result.options == {"eta": 0.1, "decay": "linear"}
    assert len(result.trials) == 6
    assert not result.edges


# Held-out samples.


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=6),
    st.floats(0.01, 0.9),
    st.integers(0, 3),
)
def test_every_client_holds_out_a_share_and_no_sample_is_in_both(
    sizes: list[int], share: float, seed: int
) -> None:
    n = sum(sizes)
    order = np.random.default_rng(seed).permutation(n)
    parts = Partition(np.split(order, np.cumsum(sizes)[:-1]))
    train = Samples(torch.arange(n), torch.arange(n))
    if max(sizes) == 1:
        with pytest.raises(ConfigError, match="holds out nothing"):
            held_out(train, parts, share, seed)
        return
    left, aside = held_out(train, parts, share, seed)
    assert sorted([*left.order.tolist(), *aside.x.tolist()]) == list(range(n))
    assert aside.x.equal(aside.y)
    for before, after in zip(parts, left, strict=True):
        assert set(after) <= set(before)
        assert len(after) == max(1, len(before) - math.ceil(share * len(before)))
    again, same = held_out(train, parts, share, seed)
    assert (again.order.tolist(), same.x.tolist()) == (left.order.tolist(), aside.x.tolist())


@pytest.mark.parametrize("share", [-0.1, 1.0, 2.0])
def test_an_impossible_share(share: float) -> None:
    with pytest.raises(ConfigError, match="validation"):
        prepare(settings(validation=share))


def test_the_test_set_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = sources.load("digits")
    poison = Samples(torch.full_like(dataset.test.x, 255), dataset.test.y + 100)
    monkeypatch.setattr(sources, "load", lambda *_, **__: dataset._replace(test=poison))
    with pytest.raises(ConfigError, match="test sample 0 has label"):
        prepare(settings())
    run = prepare(settings(validation=0.2))
    federation = run._evaluate.federation  # type: ignore[attr-defined]
    aside = federation.test
    assert len(aside) + len(federation.parts.order) == 1438
    assert len(aside) == pytest.approx(0.2 * 1438, abs=6)
    assert run.record.facts().settings["validation"] == 0.2
    scores = [row["accuracy"] for row in run if "accuracy" in row]
    assert scores[-1] > scores[0]


# The search.


def test_the_best_of_the_grid(script: Script) -> None:
    script(best_at(0.03))
    result = tuned()
    assert result.options == {"eta": 0.03}
    assert result.score == pytest.approx(0.9)
    assert tried(result) == [0.01, 0.03, 0.1, 0.3]
    assert result.edges == []


def test_the_score_is_the_mean_over_the_last_tenth_of_the_rounds(script: Script) -> None:
    script(lambda c: [0.1] * 17 + ([0.9, 0.5, 0.6] if eta(c) == 0.1 else [0.1, 0.54, 0.54]))
    result = tune(settings("fedavg", rounds=20), GRID, [0], Path("x"), pruning=False)
    assert result.options == {"eta": 0.1}
    assert result.score == pytest.approx(0.55)


@pytest.mark.parametrize(
    ("scores", "found", "further"),
    [
        ([0.5, 0.5, 0.5, 0.5], 0.03, []),  # inside before an edge, then the smaller one
        ([0.5, 0.4, 0.5, 0.4], 0.1, []),
        ([0.4, 0.4, 0.5, 0.5], 0.1, []),
        ([0.6, 0.4, 0.4, 0.6], 0.01, [0.003]),  # both are edges: it grows beyond the smaller one
        ([0.5, 0.4, 0.4, 0.6], 0.3, [1.0]),  # no tie
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_equal_scores_go_to_the_inside_then_to_the_smaller_step(
    scores: list[float], found: float, further: list[float], turned: bool, script: Script
) -> None:
    etas = GRID["eta"]
    at = dict(zip(etas, scores, strict=True))
    script(lambda c: [at.get(eta(c), 0.3)] * 8)
    result = tuned({"eta": etas[::-1] if turned else etas}, pruning=False)
    assert result.options == {"eta": found}
    assert tried(result) == sorted([*etas, *further])
    assert not result.edges


def test_a_value_that_the_grid_grew_by_is_not_preferred_to_an_equal_one(script: Script) -> None:
    script(lambda c: [0.5 if eta(c) in (0.3, 1.0) else 0.4] * 8)
    result = tuned()
    assert result.options == {"eta": 0.3}
    assert tried(result) == [*GRID["eta"], 1.0]


def test_equal_scores_of_several_parameters(script: Script) -> None:
    script(lambda _: [0.5] * 8)
    decay = ("none", "linear")
    result = tuned({"eta": GRID["eta"], "s": (0.5, 1.0, 2.0), "decay": decay})
    assert result.options == {"eta": 0.03, "s": 1.0, "decay": "none"}
    assert len(result.trials) == 4 * 3 * 2
    result = tuned({"decay": decay[::-1], "s": (0.5, 1.0), "eta": (0.3, 0.1)}, extend=False)
    assert result.options == {"decay": "linear", "s": 0.5, "eta": 0.1}


@pytest.mark.parametrize(
    ("peak", "further", "edge"),
    [
        (1.0, [1.0, 3.0], []),
        (100.0, [1.0, 3.0], ["the best eta = 3 is the largest that was tried"]),
        (0.3, [1.0], []),
        (1e-9, [0.001, 0.003], ["the best eta = 0.001 is the smallest that was tried"]),
    ],
)
def test_a_best_value_at_the_edge_extends_the_grid(
    peak: float, further: list[float], edge: list[str], script: Script
) -> None:
    script(best_at(peak))
    result = tuned()
    assert tried(result) == sorted([*GRID["eta"], *further])
    assert result.grid["eta"] == tuple(tried(result))
    assert result.edges == edge


def test_each_parameter_extends_by_itself(script: Script) -> None:
    script(lambda c: [0.5 + 0.1 * math.log10(eta(c)) - 0.1 * c.option["s"]] * 8)  # type: ignore[operator]
    result = tuned({"eta": (0.1, 1.0), "s": (0.5, 1.0)})
    assert result.options == {"eta": 100.0, "s": 0.12}
    assert result.grid == {"eta": (0.1, 1.0, 10.0, 100.0), "s": (0.12, 0.25, 0.5, 1.0)}
    assert len(result.trials) == 4 + 2 * 2


def test_a_weight_does_not_extend_above_one(script: Script) -> None:
    script(lambda c: [0.5 + 0.4 * float(c.option["mu"])] * 8)  # type: ignore[arg-type]
    result = tuned({"mu": (0.3, 0.9)}, "fedprox")
    assert result.grid == {"mu": (0.3, 0.9)}
    assert result.edges == ["the best mu = 0.9 is the largest that was tried"]


def test_no_extension_if_not_wanted(script: Script) -> None:
    script(best_at(100))
    result = tuned(extend=False)
    assert tried(result) == list(GRID["eta"])
    assert result.edges == ["the best eta = 0.3 is the largest that was tried"]


def test_the_budget_counts_every_trial(script: Script) -> None:
    script(best_at(100))
    grid = {"eta": tuple(0.01 * 2**i for i in range(10))}
    few = tuned(grid, budget=4)
    assert len(few.trials) == 4
    assert tried(few) == tried(tuned(grid, budget=4))  # always the same four
    assert set(tried(few)) <= set(grid["eta"])
    assert len(tuned(budget=5).trials) == 5  # room for one value beyond the edge


def test_an_edge_of_what_was_tried_is_reported_even_inside_the_grid(script: Script) -> None:
    script(best_at(100))
    grid = {"eta": tuple(0.01 * 2**i for i in range(10))}
    few = tuned(grid, budget=4)
    (edge,) = few.edges
    assert edge == f"the best eta = {max(tried(few)):g} is the largest that was tried"
    assert max(tried(few)) < max(grid["eta"])


def test_a_trial_pruned_with_its_first_seed_is_not_run_with_the_others(script: Script) -> None:
    grid = {"eta": tuple(float(i) for i in range(1, 13))}
    script(lambda c: [eta(c) / 20 if c.seed == 5 else 0.5] * 8)
    result = tune(settings("fedavg"), grid, [5, 6], Path("x"), extend=False)
    seeds = {trial.state: [r.run.settings.seed for r in trial.results] for trial in result.trials}
    assert seeds == {"done": [5, 6], "pruned": [5]}
    assert result.options == {"eta": 12.0}


def test_a_failed_trial_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted = run_scripted(lambda _: [0.5] * 8)
    lost = [0.01]

    def run_all(runs: Any, *_: object) -> Any:
        return [
            r._replace(state="failed", reason="its process died")
            if eta(r.run.settings) in lost
            else r
            for r in scripted(runs, 0)
        ]

    monkeypatch.setattr(batch, "run_all", run_all)
    argv = ["tune", "fedavg", "--grid", "eta=0.01,0.1", *FLAGS, "--no-extend"]
    assert main([*argv, "--out", "mine"]) == 1
    assert json.loads(Path("mine/tuned.json").read_text())["options"] == {"eta": 0.1}
    lost.append(0.1)
    assert main(argv) == 1
    err = capsys.readouterr().err
    assert "tunefree: no trial finished: fedavg:eta=0." in err
    assert "seed 1000 failed: its process died" in err


def test_hopeless_trials_are_pruned_by_the_median_of_those_run_in_full(script: Script) -> None:
    grid = {"eta": tuple(float(i) for i in range(1, 13))}
    script(lambda c: [eta(c) / 20] * 8)
    result = tuned(grid, extend=False)
    whole = result.trials[:3]
    median = statistics.median(eta(t.results[0].run.settings) for t in whole)
    for trial in result.trials[3:]:
        value = eta_of(trial)
        assert trial.state == ("pruned" if value < median else "done")
        if value < median:
            assert trial.score is None
            assert trial.results[0].history[-1]["t"] == 2  # not before a third of the rounds
    assert {trial.state for trial in whole} == {"done"}
    assert {trial.state for trial in tuned(grid, pruning=False).trials} == {"done"}
    assert result.options == {"eta": 12.0}


def test_diverged_trials_are_counted_but_not_chosen(script: Script) -> None:
    script(lambda c: None if eta(c) > 0.05 else [0.5] * 8)
    result = tuned()
    assert result.options == {"eta": 0.03}
    assert sorted(trial.state for trial in result.trials)[:2] == ["diverged", "diverged"]
    script(lambda _: None)
    with pytest.raises(
        ConfigError, match=r"no trial of fedavg finished \(all diverged\); give smaller step sizes"
    ):
        tuned()


def test_all_seeds_count(script: Script) -> None:
    script(lambda c: [0.9 if (eta(c) == 0.1) == (c.seed == 1) else 0.2] * 8)
    result = tune(settings("fedavg"), GRID, [1, 2, 3], Path("x"), pruning=False, extend=False)
    assert result.options == {"eta": 0.03}
    assert result.score == pytest.approx((0.2 + 0.9 + 0.9) / 3)


@pytest.mark.parametrize("name", [n for n, cls in METHODS.items() if cls.about.grid])
def test_every_declared_grid_can_be_searched(name: str, script: Script) -> None:
    script(lambda _: [0.5] * 8)
    grid = declared_grid(name)
    assert len(tuned(grid, name, extend=False).trials) == math.prod(map(len, grid.values()))


def test_next_values_stay_on_half_decades() -> None:
    value, up = 1e-3, []
    for _ in range(4):
        before, value = value, next_value(value, value / 3)
        up.append(value)
        assert value > before
    assert up == [0.003, 0.01, 0.03, 0.1]
    assert [next_value(0.003, 0.01), next_value(0.001, 0.003)] == [0.001, 0.0003]
    assert [next_value(0.1, 0.05), next_value(2.0, 1.0)] == [0.2, 4.0]


# The command.


def test_the_tuning_bill_is_the_sum_of_the_trial_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(batch, "run_all", run_here)
    argv = ["tune", "fedavg", "--grid", "eta=1e30,0.3,0.001,0.01", *FLAGS, "--out", "mine"]
    assert main(argv) == 0
    out = capsys.readouterr().out
    result = json.loads(Path("mine/tuned.json").read_text())
    paths = list(Path("mine").glob("*.sqlite"))
    assert len(paths) == result["bill"]["trials"] == len(result["trials"]) == 4
    records = [Record.open(path) for path in paths]
    ends = [record.history()[-1] for record in records]
    for key, column in (("bits_up",) * 2, ("bits_down",) * 2, ("samples", "samples")):
        assert result["bill"][key] == sum(row[column] for row in ends)
    assert result["bill"]["rounds"] == sum(row["t"] + 1 for row in ends) < 4 * 8
    assert result["bill"]["seconds"] == pytest.approx(sum(row["seconds"] for row in ends))
    for record in records:
        facts = record.facts()
        assert (facts.role, facts.settings["validation"]) == ("trial", 0.1)
        assert facts.settings["seed"] == 1000
    assert result["options"] == result["bill"]["chosen"] == {"eta": 0.3}
    states = {trial["options"]["eta"]: trial["state"] for trial in result["trials"]}
    assert states[1e30] == "diverged"
    assert "best: eta = 0.3, validation accuracy 0." in out
    assert f"tuning bill: 4 trials, {result['bill']['rounds']} rounds" in out
    assert "tunefree compare polarfl fedavg@mine/tuned.json" in out

    assert main([*argv, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == result


@pytest.mark.parametrize(
    "other",
    [
        ["scaffold", "--grid", "eta=0.01,0.1"],
        ["fedavg", "--grid", "eta=0.1,0.3"],
        ["fedavg", "--grid", "eta=0.01,0.1", "--seeds", "7"],
        ["fedavg", "--grid", "eta=0.01,0.1", "--budget", "1"],
        ["fedavg", "--grid", "eta=0.01,0.1", "--rounds", "6"],
    ],
)
def test_a_search_does_not_overwrite_another_one(
    other: list[str], script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    script(lambda _: [0.5] * 8)
    own, there = ["fedavg", "--grid", "eta=0.01,0.1"], ["--no-extend", "--out", "mine"]
    assert main(["tune", *own, *FLAGS, *there]) == 0
    before = Path("mine/tuned.json").read_text()
    assert main(["tune", other[0], *FLAGS, *other[1:], *there]) == 2
    refusal = "'mine/tuned.json' is from another search, of fedavg, and has its tuning bill; choose"
    assert refusal in capsys.readouterr().err
    assert Path("mine/tuned.json").read_text() == before
    assert main(["tune", *own, *FLAGS, *there]) == 0  # the same one resumes
    assert Path("mine/tuned.json").read_text() == before


def test_a_file_of_an_earlier_version_is_identified_by_its_method_and_seeds(
    script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    script(lambda _: [0.5] * 8)
    Path("mine").mkdir()
    older = {"algorithm": "fedavg", "seeds": [1000], "bill": {"trials": 2}}
    Path("mine/tuned.json").write_text(json.dumps(older))
    there = [*FLAGS, "--no-extend", "--out", "mine"]
    assert main(["tune", "scaffold", *there]) == 2
    assert "is from another search, of fedavg" in capsys.readouterr().err
    assert main(["tune", "fedavg", *there]) == 0


def test_two_searches_in_one_folder_are_billed_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One without a result leaves its trials there; they are not on another search's bill."""
    monkeypatch.setattr(batch, "run_all", run_here)
    tune(settings("fedavg"), {"eta": (0.01, 0.03)}, [1000], Path("mine"), extend=False)
    tune(settings("scaffold"), {"eta": (0.1,)}, [1000], Path("mine"), extend=False)
    argv = ["tune", "fedavg", "--grid", "eta=0.1,0.2,0.3", *FLAGS, "--no-extend", "--out", "mine"]
    assert main(argv) == 0
    bill = json.loads(Path("mine/tuned.json").read_text())["bill"]
    assert bill["trials"] == 3
    assert len(list(Path("mine").glob("*.sqlite"))) == 6

    def billed() -> dict[str, int]:
        (only,) = content(find([Path("mine")]).runs)["workloads"]
        return {row["label"]: row["search"]["trials"] for row in only["bill"]}

    alone = billed()
    assert sorted(alone.values()) == [1, 2, 3]
    assert alone["SCAFFOLD, trials"] == 1
    assert alone[f"FedAvg, trials of search {bill['search']}"] == 3
    method = ["compare", "fedavg@mine/tuned.json", *FLAGS, "--seeds", "0", "--out", "mine"]
    assert main(method) == 0
    assert billed() == {"fedavg@tuned": 3, "FedAvg, trials": 2, "SCAFFOLD, trials": 1}


def test_fixed_options_are_not_searched(script: Script) -> None:
    script(lambda _: [0.5] * 8)
    argv = ["tune", "fed_ef_sgd:compressor=sign,s=0.7", *FLAGS, "--no-extend", "--no-pruning"]
    Path("mine").mkdir()
    assert main([*argv, "--out", "mine"]) == 0
    result = json.loads(Path("mine/tuned.json").read_text())
    assert result["grid"].keys() == {"eta"}
    assert result["options"] == {"s": 0.7, "eta": 0.003, "compressor": "sign"}


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["padamfed"], "PAdaMFed has nothing to tune: its eta, gamma, beta follow from N, S, K"),
        (["delta_sgd"], "nothing to tune: its gamma, delta, eta_0 are constants of its paper"),
        (["fedavgg"], "did you mean 'fedavg'?"),
        (["fedavg@tuned.json"], "is tuned already"),
        (["fedavg:eta=0.1"], "leaves nothing to search"),
        (["fedavg:eta=0.1", "--grid", "eta=1,2"], "fixes eta, which --grid searches; remove one"),
        (["fedavg", "--budget", "0"], "--budget 0 is too small"),
        (["fedavg", "--grid", "eta"], "must look like eta=0.01,0.1,1"),
        (["fedavg", "--grid", "eta=a,b"], "must look like eta=0.01,0.1,1"),
        (["fedavg", "--grid", "=0.1,1"], "must look like eta=0.01,0.1,1"),
        (["fedavg", "--grid", "eta=1,1"], "--grid eta has the same value twice"),
        (["fedavg", "--grid", "eta=1", "--grid", "eta=2"], "--grid eta is given twice"),
        (["fedavg", "--grid", "etta=1,2"], "did you mean 'eta'?"),
        (["fedavg", "--grid", "eta=-1,1"], "--grid eta=-1.0 is out of range"),
        (
            ["fedavg", "--data", "tests.data.without_classes:clients"],
            "has no classes and so no accuracy",
        ),
        (["fedavg", "--set", "validation=-0.5"], "--set validation=-0.5 is too small"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(
    argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", *FLAGS, *argv]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert sentence in err
    assert not list(Path().rglob("*.sqlite"))
