"""The command line as its user types it: results on stdout, one sentence on stderr, exit codes."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest

from tests.variants import METHODS
from tunefree.cli import main
from tunefree.record import Record
from tunefree.record.summary import size

SMALL = (
    "run",
    "--clients",
    "6",
    "--per-round",
    "3",
    "--local-steps",
    "2",
    "--rounds",
    "8",
    "--eval-every",
    "4",
    "--algorithm",
    "padamfed",
)


@pytest.fixture(autouse=True)
def in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_no_arguments_show_where_to_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "tunefree run " in capsys.readouterr().out


@pytest.mark.parametrize("name", METHODS)
def test_every_algorithm_runs_at_its_default(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--algorithm", name, "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["algorithm"] == name
    assert result["system"] == {"N": 6, "S": 3, "K": 2, "T": 8}
    keys = {"data", "model", "steps", "accuracy", "loss", "bits_up", "bits_down", "seconds"}
    assert keys | {"seconds_per_round", "theta_sha256", "run"} <= result.keys()
    record = Record.open(Path(result["run"]))
    assert record.history()[-1]["accuracy"] == result["accuracy"]
    assert record.facts().settings["model"] == result["model"] == "mlp"


def test_text_has_the_steps_and_their_formulas_then_the_costs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*SMALL, "--out", "mine.sqlite"]) == 0
    out, err = capsys.readouterr()
    for words in (
        "PAdaMFed (Yan",
        "N = 6 clients, S = 3 a round, K = 2 local steps, T = 8 rounds",
        "eta   = 0.1768    = 1 / (K sqrt(T))",
        "gamma = 0.329     = (S K)^(1/4) / T^(3/4)",
        "beta  = 0.866     = min(1, sqrt(S K / T))",
        "run file mine.sqlite",
        " down, the opening included, the size of ",
        "test accuracy",
        "next: ",
    ):
        assert words in out
    assert "round 4/8  accuracy" in err


def test_what_is_suggested_next_is_the_same_run_with_another_method(
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = ["--partition", "iid", "--model", "logistic", "--local-epochs", "1", "--seed", "3"]
    argv = ["run", "--clients", "6", "--rounds", "2", *more, "--set", "validation=0.1"]
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "opening" not in out
    line = out.splitlines()[-1]
    assert line == (
        "  tunefree run --algorithm fedavg --set option.eta=0.1 --data digits --clients 6 "
        "--per-round 6 --rounds 2 --local-epochs 1 --partition iid --set validation=0.1 "
        "--model logistic --seed 3"
    )
    assert main(line.split()[1:]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-2:] == [
        "next: the same with nothing to tune:",
        line.replace(" --algorithm fedavg --set option.eta=0.1", ""),
    ]


def test_the_same_command_is_bit_identical_in_a_new_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = []
    for _ in range(2):
        assert main([*SMALL, "--format", "json"]) == 0
        results.append(json.loads(capsys.readouterr().out))
    assert results[0]["theta_sha256"] == results[1]["theta_sha256"]
    assert results[0]["run"] != results[1]["run"]


def test_settings_from_a_file_then_flags_then_set(capsys: pytest.CaptureFixture[str]) -> None:
    Path("exp.toml").write_text(
        "clients = 7\nper_round = 3\nlocal_steps = 2\nrounds = 5\n"
        'algorithm = "fedavg"\nmodel = "mlp"\n[option]\neta = 0.3\n[model_option]\nhidden = 9\n'
    )
    assert (
        main(["run", "exp.toml", "--rounds", "6", "--set", "local_steps=1", "--format", "json"])
        == 0
    )
    result = json.loads(capsys.readouterr().out)
    assert result["system"] == {"N": 7, "S": 3, "K": 1, "T": 6}
    assert result["steps"] == {"eta": 0.3, "s": 1.0}
    assert result["parameters"] == 65 * 9 + 10 * 10


def test_explicit_steps_for_a_study(capsys: pytest.CaptureFixture[str]) -> None:
    study = ["--set", "option.eta=0.01", "--set", "explicit_steps=true"]
    assert main([*SMALL, *study]) == 0
    assert "eta   = 0.01      given" in capsys.readouterr().out


def test_a_step_is_given_or_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--algorithm", "fedavgm", "--set", "option.eta=0.1"]) == 0
    out = capsys.readouterr().out
    assert "eta   = 0.1       given" in out
    assert "mu    = 0.9       default" in out
    assert "by hand" not in out


def test_constants_of_a_paper_have_no_formula(capsys: pytest.CaptureFixture[str]) -> None:
    study = ["--set", "option.gamma=1", "--set", "explicit_steps=true"]
    assert main([*SMALL, "--algorithm", "delta_sgd", *study, "--out", "mine.sqlite"]) == 0
    out = capsys.readouterr().out
    assert "gamma = 1         given" in out
    assert "eta_0 = 0.2       as published" in out
    assert not Record.open(Path("mine.sqlite")).facts().tuning_free
    assert main([*SMALL, "--algorithm", "delta_sgd", "--out", "free.sqlite"]) == 0
    assert Record.open(Path("free.sqlite")).facts().tuning_free


def test_a_buffered_run_prints_time_and_staleness(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--algorithm", "adamasfl", "--schedule", "buffered", "--concurrency", "6"]
    assert main([*SMALL, *argv, "--delays", "large", "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["virtual_seconds"] > 8
    assert sum(result["staleness"].values()) == sum(result["uploads"]) == 8 * 3
    assert main([*SMALL, *argv, "--delays", "large"]) == 0
    assert "virtual seconds; staleness" in capsys.readouterr().out


def test_a_flushed_buffer_as_large_as_the_jobs_is_a_synchronous_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shas = []
    for argv in (["--schedule", "buffered"], [], ["--delays", "mild"]):
        assert main([*SMALL, *argv, "--format", "json"]) == 0
        shas.append(json.loads(capsys.readouterr().out)["theta_sha256"])
    assert len(set(shas)) == 1


def test_a_compressed_run_counts_positions_too(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--algorithm", "comparfrefl", "--compressor", "top:0.1"]
    assert main([*SMALL, *argv, "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    sent = [409, 6, 64, 1]  # a tenth of each tensor of the 64-64-10 network, rounded down
    widths = [12, 6, 10, 4]  # bits of a position in it
    values = 32 * sum(sent)
    positions = sum(k * bits for k, bits in zip(sent, widths, strict=True))
    opening = 6 * 4810 * 32
    assert result["value_bits_up"] == opening + 8 * 3 * values
    assert result["bits_up"] == opening + 8 * 3 * (values + positions)
    assert main([*SMALL, *argv]) == 0
    assert "without the positions of values" in capsys.readouterr().out


@pytest.mark.filterwarnings("always")
def test_no_momentum_left_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--rounds", "3"]) == 0
    err = capsys.readouterr().err
    assert err.count("the formula gives beta = 1, no momentum, for T = 3 rounds") == 1


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--algorithm", "padamfd"], "did you mean 'padamfed'?"),
        (["--data", "digit"], "did you mean 'digits'?"),
        (["--model", "logistics"], "did you mean 'logistic'?"),
        (["--per-round", "7"], "--per-round 7 exceeds --clients = 6"),
        (["--local-steps", "0"], "--local-steps 0 is too small"),
        (["--rounds", "0"], "--rounds 0 is too small"),
        (["--batch-size", "0"], "--batch-size 0 is too small"),
        (["--clients", "5000"], "1438 samples cannot be split across 5000 clients"),
        (["--partition", "dirichlet:0"], "alpha"),
        (["--partition", "dirichlet:-1"], "alpha"),
        (["--partition", "diriclet:0.1"], "did you mean 'dirichlet'?"),
        (["--partition", "dirichlet"], "dirichlet"),
        (["--set", "option.eta=0.1"], "PAdaMFed takes no step size"),
        (
            ["--algorithm", "delta_sgd", "--set", "option.gamma=1"],
            "Delta-SGD takes no step size: its gamma, delta, eta_0 are constants of its paper",
        ),
        (["--set", "option.lr=0.1"], "PAdaMFed takes no step size"),
        (["--set", "nonsense"], "must look like key=value"),
        (["--compressor", "top:0.1"], "PAdaMFed sends whole vectors"),
        (["--algorithm", "comparfrefl", "--compressor", "topp:0.1"], "did you mean 'top'?"),
        (["--algorithm", "scallion", "--compressor", "top:0.1"], "is not unbiased"),
        (["--concurrency", "4"], "belong to the buffered schedule"),
        (["--schedule", "buffered", "--concurrency", "2"], "--concurrency 2 is out of range"),
        (["--delays", "mildly"], "mild"),
        (["--fleet", "poll"], "did you mean 'pool'?"),
        (["--kernels", "batch-major"], "did you mean 'batch-minor'?"),
        (["--out", "/proc/nowhere/run.sqlite"], "cannot be written"),
        (["--out", "/proc/run.sqlite"], "'/proc/run.sqlite' cannot be written ("),
        (["--out", "."], "--out . is a folder; give a file"),
        (["--device", "warp"], "--device warp cannot be used here"),
        (["--model", "nowhere:build"], "could not be imported"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(
    argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMALL, *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tunefree: ")
    assert err.count("\n") == 1
    assert sentence in err
    assert not list(Path().rglob("*.sqlite"))


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["run", "--round", "3"], "did you mean --rounds?"),
        (["run", "--algorthm", "fedavg"], "did you mean --algorithm?"),
        (["run", "--rounds", "many"], "invalid int value: 'many'"),
        (["run", "--per-round", "ten"], "invalid int value: 'ten' (see"),
        (["rnu"], "invalid choice: 'rnu'"),
        (["rnu"], "did you mean run?"),
        (["run", "--lr", "0.1"], "one takes it as --set option.eta=0.1"),
        (["run", "--learning-rate=0.1"], "step sizes follow from --per-round and --local-steps"),
        (["compare", "fedavg", "--eta", "1"], "one takes it as in fedavg:eta=0.1"),
        (["flower", "up", "--tsl"], "did you mean --tls?"),
        (["--rounds", "5"], "--rounds needs a command before it, as in `tunefree run --rounds"),
    ],
)
def test_bad_usage_exits_with_2(
    argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(argv)
    assert stopped.value.code == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("flag", ["--tls", "--lr", "--values"])
def test_a_flag_of_another_command_is_not_suggested(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["run", flag, "3"])
    assert "did you mean" not in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tunefree {metadata.version('tunefree')}\n"


def test_a_diverged_baseline_is_reported_and_saved(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--algorithm", "fedavg", "--set", "option.eta=1e30", "--out", "run.sqlite"]
    assert main([*SMALL, *argv]) == 1
    out, err = capsys.readouterr()
    assert "test accuracy" not in out
    assert "training has diverged; earlier rounds are saved in run.sqlite" in err
    record = Record.open(Path("run.sqlite"))
    assert record.facts().state == "diverged"
    assert record.history()


def test_an_existing_run_is_not_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run.sqlite").write_text("mine")
    assert main([*SMALL, "--out", "run.sqlite"]) == 2
    assert "exists already" in capsys.readouterr().err
    assert Path("run.sqlite").read_text() == "mine"


def test_methods_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "--format", "json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows.keys() == METHODS.keys()
    assert (rows["padamfed"]["down"], rows["padamfed"]["up"]) == (2, 2)
    assert (rows["padamfed"]["opening_down"], rows["padamfed"]["opening_up"]) == (1, 1)
    assert (rows["fedavg"]["up"], rows["fedavg"]["memory"]) == (1, 0)
    assert (rows["fedavg"]["steps"], rows["polarfl"]["grid"]) == ({}, {})
    assert rows["padamfed"]["steps"]["eta"].startswith("1 / (K sqrt(")
    assert main(["methods"]) == 0
    assert "scaffold_m_vr" in capsys.readouterr().out


def test_methods_fit_a_terminal_of_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["methods"]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if not line.startswith("    ")] == ["name", *METHODS]
    assert all(cls.about.paper in " ".join(out.split()) for cls in METHODS.values())


def test_sizes_that_people_read() -> None:
    assert [size(8 * n) for n in (1, 999, 1e3, 2.5e6, 1e16)] == [
        "1.0 B",
        "999.0 B",
        "1.0 kB",
        "2.5 MB",
        "10000.0 TB",
    ]
