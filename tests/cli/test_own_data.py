"""`--data table.csv` and `--data package.module:function` as their user types them."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunefree.cli import main
from tunefree.data import sources, user_data
from tunefree.record import Record

FEW = ["--per-round", "2", "--local-steps", "2", "--rounds", "4", "--eval-every", "2"]
TABLE = ["--data", "table.csv", "--target-column", "ill"]


@pytest.fixture(autouse=True)
def in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    user_data.read_table.cache_clear()
    user_data.given_by.cache_clear()


def write(name: str = "table.csv", ill: str = "class", seed: int = 0, rows: int = 200) -> None:
    """A table of two informative columns, one constant, a hospital, and a target."""
    rng = np.random.default_rng(seed)
    lines = ["age,weight,same,hospital,ill"]
    for age, weight in rng.normal(size=(rows, 2)):
        sick = age + weight > 0
        label = {"class": "yes" if sick else "no", "number": f"{age + weight + 0.5:.4f}"}[ill]
        lines.append(f"{60 + 9 * age},{70 + 8 * weight},1,{rng.choice(['A', 'B', 'C'])},{label}")
    Path(name).write_text("\n".join(lines) + "\n")


def result(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--format", "json"]) == 0, capsys.readouterr().err
    out: dict[str, Any] = json.loads(capsys.readouterr().out)
    return out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    return err


def test_a_table_with_its_own_clients(capsys: pytest.CaptureFixture[str]) -> None:
    write()
    column = ["--client-column", "hospital"]
    done = result(capsys, "run", *TABLE, *column, *FEW, "--rounds", "30", "--out", "run.sqlite")
    assert (done["system"]["N"], done["partition"], done["model"]) == (3, "natural", "mlp")
    assert done["accuracy"] > 0.8
    assert done["parameters"] == (3 + 1) * 64 + 65 * 2
    counts = Record.open(Path("run.sqlite")).facts().label_counts
    assert sum(map(sum, counts)) == 161  # a fifth of each hospital's rows is for testing


def test_a_table_is_partitioned_and_a_rerun_is_bit_identical(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write()
    argv = [
        "run",
        "--data",
        "table.csv",
        "--target",
        "ill",
        "--set",
        "data_option.drop=hospital",
        *FEW,
    ]
    first, second = (result(capsys, *argv, "--clients", "5") for _ in range(2))
    assert (first["system"]["N"], first["partition"]) == (5, "dirichlet:0.1")
    assert first["theta_sha256"] == second["theta_sha256"]
    assert "/" not in first["run"].removeprefix("runs/")


def test_what_is_suggested_next_can_be_typed(capsys: pytest.CaptureFixture[str]) -> None:
    write("my table.csv")
    argv = ["--data", "my table.csv", "--target", "ill", "--set", "data_option.drop=hospital"]
    assert main(["run", *argv, *FEW, "--clients", "5"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.endswith(
        "--data 'my table.csv' --clients 5 --per-round 2 --local-steps 2 --rounds 4 "
        "--target-column ill --set data_option.drop=hospital --eval-every 2"
    )
    typed = shlex.split(line)[1:]
    assert result(capsys, *typed)["system"] == {"N": 5, "S": 2, "K": 2, "T": 4}


def test_a_real_target_is_a_regression(capsys: pytest.CaptureFixture[str]) -> None:
    write(ill="number")
    argv = [*TABLE, "--set", "data_option.drop=hospital", *FEW, "--rounds", "60", "--clients", "5"]
    done = result(capsys, "run", *argv)
    assert done["accuracy"] is None
    assert done["partition"] == "iid"
    assert done["loss"] < 1.5  # of a variance of 2
    assert main(["runs"]) == 0
    assert "loss " in capsys.readouterr().out


def test_inputs_are_scaled_by_the_training_rows_only() -> None:
    write()
    data = sources.load("table.csv", target="ill", drop="hospital")
    assert data.train.x.mean(0) == pytest.approx([0, 0, 0], abs=1e-5)
    assert data.train.x.std(0, correction=0) == pytest.approx([1, 1, 0], abs=1e-5)
    assert data.test.x.mean(0) != pytest.approx([0, 0, 0], abs=1e-4)
    assert (len(data.train), len(data.test), data.names) == (160, 40, ("no", "yes"))


def test_labels_that_are_whole_numbers_are_classes_in_their_order() -> None:
    lines = [f"{i};{(10, 9, 100)[i % 3]}" for i in range(30)]
    Path("t.csv").write_text("x;y\n" + "\n".join(lines) + "\n\n")
    data = sources.load("t.csv", target="y", test=0.5)
    assert data.names == ("9", "10", "100")
    assert (len(data.train), len(data.test), data.classes) == (15, 15, 3)


@pytest.mark.parametrize(
    ("text", "words", "sentence"),
    [
        ("a,city,y\n1,Paris,0\n2,Rome,1\n", ["--target", "y"], "--data table.csv has the text"),
        (
            "a,city,y\n1,Paris,0\n2,Rome,1\n",
            ["--target", "y"],
            "the text 'Paris' in column 'city', line 2",
        ),
        ("a,y\n1,0\n,1\n", ["--target", "y"], "--data table.csv has nothing in column 'a'"),
        ("a,y\n1,0\nnan,1\n", ["--target", "y"], "'nan' in column 'a', line 3"),
        (
            "a,y\n1,0\n,1\n",
            ["--target", "y"],
            "line 3, where a number is needed; fill it in, del",
        ),
        ("a,y\n\n1,0\n2,\n", ["--target", "y"], "has nothing in column 'y', line 4; fill it in"),
        ("a,y\n1,0\n2\n", ["--target", "y"], "has 1 cells in line 3, but there are 2 columns"),
        ("a,y\n1,0\n", [], "needs a target; name its column: --target-column y"),
        ("a,why\n1,0\n", ["--target", "y"], "did you mean 'why'?"),
        (
            "a,y\n1,0\n",
            ["--target", "y", "--client-column", "b"],
            "--client-column b is not known",
        ),
        (
            "a,y\n1,0\n2,0\n",
            ["--target", "y"],
            "the value '0' in column 'y': nothing to learn",
        ),
        ("a,y\n", ["--target", "y"], "has no rows"),
        ("", ["--target", "y"], "must start with a line of two or more different column names"),
        ("y,z\n1,0\n", ["--target", "y", "--set", "data_option.drop=z"], "no column to learn from"),
        ("a,y\n1,0\n", ["--target", "y", "--set", "data_option.tset=0.1"], "did you mean 'test'?"),
        ("a,y\n1,0\n", ["--target", "y", "--set", "data_option.test=2.0"], "between 0 and 1"),
        (
            "a,y\n1,b\n2,c\n",
            ["--target", "y", "--set", "data_option.task=regression"],
            "has 'b' in column 'y', which is not",
        ),
        ("a,y\n1,0\n", ["--target", "y", "--data-dir", "x"], "is for named data sets"),
        (
            "a,y\n" + "".join(f"1,{i}\n" for i in range(40)),
            ["--target", "y"],
            "40 different values in column 'y' of 40 rows, too many for classes",
        ),
    ],
)
def test_a_table_that_cannot_be_used_is_one_sentence(
    text: str, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("table.csv").write_text(text)
    assert sentence in refused(capsys, "run", "--data", "table.csv", *words)
    assert not Path("runs").exists()


def test_a_missing_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert "cannot be read (No such file" in refused(capsys, "run", "--data", "absent.csv")
    assert "a file that ends in .csv, leaf:FOLDER, or package.module:function" in refused(
        capsys, "run", "--data", "absent.tsv"
    )


def test_a_changed_table_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    write()
    argv = [*TABLE, "--set", "data_option.drop=hospital", *FEW, "--clients", "4"]
    result(capsys, "run", *argv, "--out", "run.sqlite")
    write(seed=1)
    err = refused(capsys, "run", "--resume", "run.sqlite", "--rounds", "9")
    assert "--data table.csv has changed" in err
    write()
    assert result(capsys, "run", "--resume", "run.sqlite", "--rounds", "9")["rounds"] == 9


def test_compare_tune_and_sweep_on_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    write()
    argv = [*TABLE, "--client-column", "hospital", *FEW, "--workers", "1"]
    one = [*argv, "--seeds", "0", "--out", "compared"]
    (method,) = result(capsys, "compare", "polarfl", *one, "--target", "0.2")["methods"]
    assert method["accuracy"] > 0.4
    write(seed=1)  # the same command must not show results on other rows
    (other,) = result(capsys, "compare", "polarfl", *one)["methods"]
    assert other["runs"][0]["run"] != method["runs"][0]["run"]
    tuned = result(capsys, "tune", "fedavg", *argv, "--grid", "eta=0.1,0.3", "--no-extend")
    assert tuned["options"]["eta"] in (0.1, 0.3)
    swept = result(capsys, "sweep", "fedavg", "--over", "eta", "--values", "0.1", "1", *argv)
    assert len(swept["points"]) == 2
    with pytest.raises(SystemExit):
        main(["compare", "polarfl", "--data", "table.csv", "--target", "ill"])
    assert "name the column to learn by --target-column ill" in capsys.readouterr().err


def test_a_regression_has_no_accuracy_to_tune_by(capsys: pytest.CaptureFixture[str]) -> None:
    write(ill="number")
    argv = [*TABLE, "--set", "data_option.drop=hospital", *FEW]
    assert "no accuracy, which tune and sweep need" in refused(capsys, "tune", "fedavg", *argv)


def test_data_show(capsys: pytest.CaptureFixture[str]) -> None:
    write()
    show = ["data", "show", "table.csv", "--target", "ill", "--client-column", "hospital"]
    shown = result(capsys, *show, "--partition", "natural")
    assert (shown["train"], shown["test"], shown["input"], shown["classes"]) == (161, 39, [3], 2)
    assert shown["natural clients"] == 3
    assert Path(shown["clients' picture"]).read_bytes().startswith(b"\x89PNG")
    assert "picture" not in shown
    assert result(capsys, "data", "get", "table.csv", "--target", "ill", *show[5:])["train"] == 161


MODULE = """
import numpy as np, torch, tunefree
from tunefree.data.sources import load
rng = np.random.default_rng(0)
x, y = rng.normal(size=(60, 4)).astype("float32"), np.arange(60) % 3
def whole(): return x, y
def clients(count=4): return [(x[i::count], y[i::count]) for i in range(count)]
def with_test(): return clients(), (x[:9], y[:9])
def train_and_test(): return torch.utils.data.TensorDataset(*map(torch.from_numpy, (x, y))), (x, y)
def dealt(): return (x, y), tunefree.partition.iid(y, clients=5)
def dealt_and_test(): return dealt(), (x, y)
def ours(): return load("digits")
def real(): return x, x[:, 0]
class Augmented(torch.utils.data.Dataset):
    def __len__(self): return 20
    def __getitem__(self, i): return torch.from_numpy(x[i]) + torch.randn(4), float(x[i, 0])
def augmented(): return [Augmented(), Augmented()]
def augmented_and_test(): return augmented(), (x, x[:, 0])
def of_classes(wanted): return [(x[y == i], y[y == i]) for i in wanted], (x, y)
def noise(): return np.random.normal(size=(30, 2)), np.arange(30) % 2
def nothing(): return None
def broken(): return {}["age"]
number = 3
"""


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> str:
    Path("own_module.py").write_text(MODULE)
    monkeypatch.delitem(sys.modules, "own_module", raising=False)
    return "own_module"


@pytest.mark.parametrize(
    ("function", "train", "test", "clients"),
    [
        ("whole", 48, 12, None),
        ("clients", 48, 12, 4),
        ("with_test", 60, 9, 4),
        ("train_and_test", 60, 60, None),
        ("dealt", 50, 10, 5),
        ("dealt_and_test", 60, 60, 5),
        ("ours", 1438, 359, None),
        ("real", 48, 12, None),
        ("augmented_and_test", 40, 60, 2),
    ],
)
def test_what_a_function_may_return(
    module: str,
    function: str,
    train: int,
    test: int,
    clients: int | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = sources.load(f"{module}:{function}")
    assert (len(data.train), len(data.test)) == (train, test)
    own_clients = None if data.groups is None else len(np.unique(data.groups))
    assert own_clients == clients
    argv = [] if clients else ["--clients", "3"]
    done = result(capsys, "run", "--data", f"{module}:{function}", *argv, *FEW)
    assert done["system"]["N"] == (clients or 3)
    assert (done["accuracy"] is None) == (function in ("real", "augmented_and_test"))
    assert done["data"] == f"{module}:{function}"


def test_options_of_a_function(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["run", "--data", f"{module}:clients", *FEW, "--set"]
    assert result(capsys, *argv, "data_option.count=6")["system"]["N"] == 6
    assert "did you mean 'count'?" in refused(capsys, *argv, "data_option.cout=6")
    sentence = "'own_module:clients' has no option 'm'; choose from count, test\n"
    assert sentence in refused(capsys, *argv, "data_option.m=6")
    lists = f'data = "{module}:of_classes"\n[data_option]\nwanted = [0, 2]\n'
    Path("lists.toml").write_text(lists)
    assert result(capsys, "run", "lists.toml", *FEW)["system"]["N"] == 2
    Path("no_python.py").write_text("def f(:\n")
    assert "could not be imported: SyntaxError" in refused(capsys, "run", "--data", "no_python:f")


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ("nothing", "NoneType"),
        ("broken", "your function own_module:broken failed with KeyError: 'age' (own_module.py, "),
        ("number", "is not a function"),
        ("augmented", "read when drawn (random ones, or more than memory holds) cannot be split"),
        ("absent", "could not be imported"),
    ],
)
def test_what_is_not_a_function_of_data(
    module: str, function: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sentence in refused(capsys, "run", "--data", f"{module}:{function}", *FEW)


def test_samples_that_differ_every_time_are_noticed(
    module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--data", f"{module}:noise", *FEW, "--clients", "3", "--partition", "iid"]
    result(capsys, "run", *argv, "--out", "run.sqlite")
    user_data.given_by.cache_clear()
    err = refused(capsys, "run", "--resume", "run.sqlite", "--rounds", "9")
    assert "a function that returns the same samples every time" in err


def test_settings_may_stand_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    write()
    Path("exp.toml").write_text(
        'data = "table.csv"\nper_round = 3\nlocal_steps = 1\nrounds = 2\n'
        '[data_option]\ntarget = "ill"\nclient_column = "hospital"\n'
    )
    assert result(capsys, "run", "exp.toml")["system"] == {"N": 3, "S": 3, "K": 1, "T": 2}
