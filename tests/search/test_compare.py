"""`tunefree compare`: methods as typed, the same runs for all, and the printed results."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.search.small import FLAGS, run_here, run_scripted, settings
from tests.variants import METHODS
from tunefree.cli import compare as cli_compare
from tunefree.cli import main
from tunefree.errors import ConfigError
from tunefree.record import Record
from tunefree.search import batch, comparison, method_spec
from tunefree.search.method_spec import MethodSpec, configure, parse_method

WITHOUT_CLASSES = "tests.data.without_classes:clients"

keys = st.from_regex(r"[a-z_][a-z0-9_]{0,6}", fullmatch=True).filter(lambda key: key != "name")
texts = st.from_regex(r"[a-z]{1,4}([:,][a-z0-9.]{1,4}){0,3}", fullmatch=True).filter(
    lambda text: text not in ("true", "false", "inf", "nan")
)
values = st.one_of(
    st.integers(0, 10**6), st.floats(1e-6, 1e6), st.booleans().map(str).map(str.lower), texts
)


@pytest.fixture(autouse=True)
def in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "run_all", run_here)


@given(
    st.sampled_from(sorted(METHODS)),
    st.dictionaries(keys, values, max_size=4),
    st.sampled_from(["", "tuned.json", "a/b-c_d/tuned.json", "C:/x,y/t.json"]),
)
def test_a_method_has_the_options_that_were_typed(
    name: str, options: dict[str, Any], file: str
) -> None:
    own = ",".join(f"{key}={value}" for key, value in options.items())
    method = parse_method(f"{name}{'@' * bool(file)}{file}{':' * bool(own)}{own}")
    assert (method.name, method.tuned) == (name, Path(file) if file else None)
    expected = {k: {"true": True, "false": False}.get(str(v), v) for k, v in options.items()}
    assert method.options == expected
    assert list(method.options) == list(options)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("comparfrefl:compressor=top:0.05", {"compressor": "top:0.05"}),
        ("scafcom:compressor=a:1,2,b=3", {"compressor": "a:1,2", "b": 3}),
        ("fedavg:eta=1e-3,weighting=examples", {"eta": 1e-3, "weighting": "examples"}),
    ],
)
def test_values_may_contain_colons_and_commas(text: str, options: dict[str, object]) -> None:
    assert parse_method(text).options == options


BUFFERED = ["--schedule", "buffered", "--concurrency", "6", "--delays", "large"]


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["fedavgg"], "did you mean 'fedavg'?"),
        (["fedavg:"], "must look like NAME, NAME:key=value"),
        (["fedavg:eta"], "must look like NAME, NAME:key=value"),
        (["fedavg:name=scaffold"], "name cannot be changed"),
        (["fedavg:eta=1,eta=2"], "eta is given twice"),
        (["fedavg:etta=1"], "did you mean 'eta'?"),
        (["fedavg:eta=-1"], "fedavg:eta=-1 is out of range"),
        (["padamfed:eta=0.1"], "PAdaMFed takes no step size"),
        (["fedavg", "fedavg"], "method fedavg is given 2 times"),
        (["fedavg", "--seeds", "1", "1"], "seed 1 is given 2 times"),
        (["fedavg", "--seeds", "-1"], "--seeds -1 is too small"),
        (["fedavg", "--workers", "-1"], "--workers -1 is too small"),
        (["fedavg", "--target", "90"], "--target 90.0 must be an accuracy between 0 and 1"),
        (["fedavg@nowhere.json"], "write it with `tunefree tune fedavg`"),
        (["fedavg@text.json"], "was not written by `tunefree tune`"),
        (["fedavg@list.json"], "was not written by `tunefree tune`"),
        (["fedavg@other.json"], "contains tuned settings of scaffold, not of fedavg"),
        (["fedavg", "--set", "option.eta=0.1"], "give it to one method, as in fedavg:eta=..."),
        (["fedavg", "--set", "seed=1"], "--set seed cannot be used here"),
        (["fedavg:schedule=buffered"], "schedule = 'buffered' of a method must be 'synchronous'"),
        (["fedavg:schedule=sync", *BUFFERED], "schedule = 'sync' of a method"),
        (["fedavg", "--per-round", "7"], "--per-round 7 exceeds --clients = 6"),
        (["fedavg", "--compressor", "top:2"], ""),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(
    argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str], here: None
) -> None:
    Path("text.json").write_text("eta = 1")
    Path("list.json").write_text("[1]")
    other = {"algorithm": "scaffold", "options": {}, "bill": {}, "settings": {}}
    Path("other.json").write_text(json.dumps(other))
    if not sentence:  # a compressor is only for those that compress
        assert configure(parse_method(argv[0]), settings(compressor="top:0.5"))[0]
        return
    assert main(["compare", *FLAGS, *argv]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert sentence in err
    assert not list(Path().rglob("*.sqlite"))


def test_all_methods_share_all_but_the_method() -> None:
    base = settings(rounds=20, partition="iid", compressor="top:0.5")
    seeds = [4, 5]
    groups = [
        comparison.plan_method(each, base, seeds, Path("x"))
        for each in comparison.contenders(
            ["fedavg", "comparfrefl", "scafcom:compressor=sign"], seeds
        )
    ]
    assert [[run.settings.seed for run in runs] for runs in groups] == [[4, 5]] * 3
    compressors = [runs[0].settings.compressor for runs in groups]
    assert compressors == ["", "top:0.5", "sign"]
    for runs in groups:
        for section in ("system", "data", "model", "schedule"):
            assert getattr(runs[0].settings, section) == getattr(base, section)


def test_a_method_may_run_synchronous_rounds_on_the_same_clock() -> None:
    base = settings(schedule="buffered", concurrency=5, delays="large")
    same, _ = configure(parse_method("adamasfl"), base)
    assert same.schedule == base.schedule
    other, _ = configure(parse_method("padamfed:schedule=synchronous"), base)
    assert (other.schedule, other.delays) == ("synchronous", "large")
    assert (other.concurrency, other.option) == (0, {})


def test_the_table_and_the_json(here: None, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["compare", "padamfed", "fedavg:eta=0.3", "fedavg:eta=1e30", *FLAGS, "--seeds", "0", "1"]
    assert main([*argv, "--target", "0.3"]) == 0
    out = capsys.readouterr().out
    (folder,) = Path("runs").iterdir()
    assert f"tunefree report {folder} -o report.html" in out
    assert main([*argv, "--target", "0.3", "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert list(Path("runs").iterdir()) == [folder]  # the same command finds it again
    assert result["folder"] == str(folder)
    free, tuned, diverged = result["methods"]

    histories = []
    for run in free["runs"]:
        record = Record.open(Path(run["run"]))
        assert record.facts().label == "padamfed"
        histories.append(record.history())
    finals = [history[-1]["accuracy"] for history in histories]
    assert [run["accuracy"] for run in free["runs"]] == finals
    assert free["accuracy"] == pytest.approx(statistics.mean(finals))
    assert free["deviation"] == pytest.approx(abs(finals[0] - finals[1]) / 2**0.5)
    bests = [max(row.get("accuracy", 0) for row in history) for history in histories]
    assert free["best"] == pytest.approx(statistics.mean(bests))
    for key, column in (("bits_up", "bits_up"), ("samples", "samples"), ("seconds", "seconds")):
        assert free[key] == pytest.approx(statistics.mean(h[-1][column] for h in histories))
    firsts = [
        next((row["t"] + 1 for row in h if row.get("accuracy", 0) >= 0.3), None) for h in histories
    ]
    assert free["rounds"] == firsts
    assert (free["steps"], tuned["steps"]) == ("from theory", "chosen")
    assert tuned["step_sizes"] == {"eta": 0.3}
    assert (diverged["accuracy"], diverged["bits_up"]) == (None, None)
    assert {run["state"] for run in diverged["runs"]} == {"diverged"}

    assert f"from theory  {free['accuracy']:.4f} ± {free['deviation']:.4f}" in out
    assert "-, 2 of 2 diverged" in out
    assert "fedavg:eta=0.3: eta = 0.3, given" in out


def test_constants_of_a_paper_do_not_count_as_chosen(
    here: None, capsys: pytest.CaptureFixture[str]
) -> None:
    methods = ["delta_sgd", "delta_sgd:eta_0=0.1,explicit_steps=true", "fedexp"]
    assert main(["compare", *methods, *FLAGS, "--seeds", "0", "--format", "json"]) == 0
    outcomes = json.loads(capsys.readouterr().out)["methods"]
    assert [each["steps"] for each in outcomes] == ["as published", "chosen", "chosen"]
    assert outcomes[0]["step_sizes"] == {"gamma": 2, "delta": 0.1, "eta_0": 0.2}
    assert main(["compare", *methods, *FLAGS, "--seeds", "0"]) == 0
    out = capsys.readouterr().out
    assert "fedexp: eta = 0.1, epsilon = 0.001, its default" in out
    assert "delta_sgd: " not in out


def test_a_tuned_method_has_its_tuning_bill(
    here: None, capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    bill = {"trials": 7, "rounds": 56}
    tuned = {"algorithm": "fedavg", "options": {"eta": 0.2}, "bill": bill}
    tuned["settings"] = settings("fedavg").asdict()
    Path("tuned.json").write_text(json.dumps(tuned))
    argv = ["compare", "fedavg@tuned.json", *FLAGS, "--seeds", "0"]
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert "fedavg@tuned: eta = 0.2, found in 7 trials and 56 rounds" in out
    assert "note:" not in err
    (path,) = Path().rglob("*.sqlite")
    facts = Record.open(path).facts()
    assert (facts.tuning, facts.role) == (bill, "method")
    assert facts.settings["option"] == {"eta": 0.2}


def test_a_decay_that_a_search_found_is_named(
    here: None, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = {"eta": 0.2, "decay": "linear"}
    tuned = {"algorithm": "fedavg", "options": chosen, "bill": {"trials": 4, "rounds": 40}}
    tuned["bill"] |= {"chosen": chosen}  # type: ignore[operator]
    tuned["settings"] = settings("fedavg").asdict()
    Path("tuned.json").write_text(json.dumps(tuned))
    assert main(["compare", "fedavg@tuned.json", *FLAGS, "--seeds", "0"]) == 0
    assert "eta = 0.2, decay = linear, found in 4 trials" in capsys.readouterr().out


def test_a_tuned_method_is_not_compared_on_the_seed_it_was_tuned_with(
    here: None, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned = {"algorithm": "fedavg", "options": {"eta": 0.2}, "bill": {}, "seeds": [1000, 1001]}
    tuned["settings"] = settings("fedavg").asdict()
    Path("tuned.json").write_text(json.dumps(tuned))
    argv = ["compare", "padamfed", "fedavg@tuned.json", *FLAGS, "--seeds"]
    assert main([*argv, "0", "1000"]) == 2
    assert "fedavg was tuned with seed 1000; compare it on other seeds" in capsys.readouterr().err
    assert main([*argv, "1000", "1001"]) == 2
    assert "fedavg was tuned with seeds 1000, 1001; compare" in capsys.readouterr().err
    assert not list(Path().rglob("*.sqlite"))
    assert main(["compare", "padamfed", *FLAGS, "--seeds", "1000"]) == 0
    assert main([*argv, "0"]) == 0


def test_settings_tuned_for_another_task_give_a_warning() -> None:
    tuned = {"algorithm": "fedavg", "options": {}, "bill": {}, "settings": settings().asdict()}
    Path("tuned.json").write_text(json.dumps(tuned))
    method = parse_method("fedavg@tuned.json")
    with pytest.warns(UserWarning, match="fedavg was tuned with rounds = 8, partition"):
        configure(method, settings(rounds=9, partition="iid"))
    with pytest.warns(UserWarning, match="fedavg was tuned with model_option = "):
        configure(method, settings(model_option__hidden=4))
    configure(method, settings(validation=0.2, data_dir="elsewhere"))


def test_a_failed_run_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted = run_scripted(lambda config: [0.5, 0.6])

    def run_all(runs: Any, *_: object) -> Any:
        first, *rest = scripted(runs, 0)
        return [first._replace(state="failed", reason="no memory"), *rest]

    monkeypatch.setattr(batch, "run_all", run_all)
    assert main(["compare", "padamfed", *FLAGS]) == 1
    assert "0.6000 ± 0.0000, 1 of 3 failed" in capsys.readouterr().out


def test_ctrl_c_exits_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_all(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(batch, "run_all", run_all)
    assert main(["compare", "padamfed", *FLAGS, "--out", "mine"]) == 130
    assert "saved in mine; the same command resumes it" in capsys.readouterr().err


def test_data_without_classes_is_compared_by_loss(
    here: None, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["compare", "padamfed", *FLAGS, "--data", WITHOUT_CLASSES, "--seeds", "0"]
    assert main([*argv, "--partition", "natural", "--clients", "20"]) == 0
    assert "final loss" in capsys.readouterr().out


def test_words_on_rounds() -> None:
    words = cli_compare.words_on_rounds
    assert [words([None, None]), words([4, 8]), words([4, None])] == ["never", "6", "4 (1 of 2)"]


def test_methods_tuned_by_different_searches_are_named_after_their_files() -> None:
    found = method_spec.labels(
        [MethodSpec("fedavg", tuned=Path(name)) for name in ("a.json", "b.json")]
    )
    assert found == ["fedavg@a.json", "fedavg@b.json"]
    alone = method_spec.labels([MethodSpec("fedavg", tuned=Path("a.json")), MethodSpec("fedavg")])
    assert alone == ["fedavg@tuned", "fedavg"]
    with pytest.raises(ConfigError, match="method fedavg@a.json is given 2 times"):
        comparison.contenders(["fedavg@a.json"] * 2, [0])


def test_it_prints_where_each_step_came_from(
    here: None, capsys: pytest.CaptureFixture[str]
) -> None:
    bill = {"trials": 7, "rounds": 56, "chosen": {"eta": 0.2}}
    tuned = {"algorithm": "fedavgm", "options": {"eta": 0.2, "s": 1.0}, "bill": bill}
    tuned["settings"] = settings("fedavgm").asdict()
    Path("tuned.json").write_text(json.dumps(tuned))
    argv = ["compare", "fedavgm@tuned.json", "fedavg", "fedavgm:eta=1", *FLAGS, "--seeds", "0"]
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "fedavgm@tuned: eta = 0.2, found in 7 trials and 56 rounds; s = 1, given; mu = " in out
    assert "fedavg: eta = 0.1, its default\n" in out
    assert "fedavgm:eta=1: eta = 1, given; " in out
    steps = [Record.open(path).facts().steps for path in sorted(Path().rglob("*.sqlite"))]
    assert all({"eta", "s"} <= set(each) for each in steps)


def test_a_search_beyond_the_declared_grid_is_printed_too(
    here: None, capsys: pytest.CaptureFixture[str]
) -> None:
    bill = {"trials": 2, "rounds": 16, "chosen": {"s": 0.5}}
    tuned = {"algorithm": "fedavg", "options": {"s": 0.5}, "bill": bill}
    tuned["settings"] = settings("fedavg").asdict()
    Path("tuned.json").write_text(json.dumps(tuned))
    argv = ["compare", "fedavg@tuned.json", "fedavg:weighting=examples", *FLAGS, "--seeds", "0"]
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "fedavg@tuned: s = 0.5, found in 2 trials and 16 rounds; eta = 0.1, its default" in out
    assert "fedavg:weighting=examples: eta = 0.1, its default" in out


def test_scores_on_held_out_samples_are_called_validation(
    here: None, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["compare", "padamfed", *FLAGS, "--seeds", "0", "--set", "validation=0.3"]
    assert main(argv) == 0
    assert "validation accuracy" in capsys.readouterr().out
