"""`tunefree.compare`: the command line's comparison for your own model, clients and methods."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tunefree
from tests.search.small import run_here
from tests.test_train import blobs
from tunefree import ConfigError, System, search
from tunefree.cli import main
from tunefree.methods import FedAvg, PAdaMFed, PolarFL
from tunefree.record import Record
from tunefree.search import batch

SMALL: dict[str, Any] = {
    **{"rounds": 6, "per_round": 3, "local_steps": 2, "batch_size": 8, "eval_every": 2},
    "seeds": (0, 1),
}
TEST = blobs(1, 60, seed=9)[0]


def mine(sys: System) -> FedAvg:
    return FedAvg(eta=0.3)


@pytest.fixture(autouse=True)
def in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def compare(*methods: Any, **more: Any) -> list[Any]:
    torch.manual_seed(0)
    return tunefree.compare(methods, nn.Linear(4, 3), blobs(), TEST, **(SMALL | more))


def test_own_clients_own_methods_and_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    methods = (PolarFL(), FedAvg(eta=0.1), mine, "fedavg:eta=1e38")
    rows = compare(*methods, out="c", target=0.2, evaluate=lambda m: {"bias": m.bias.sum()})
    assert [row.method for row in rows] == ["polarfl", "fedavg:eta=0.1", "mine", "fedavg:eta=1e+38"]
    assert [row.steps for row in rows] == ["from theory", "chosen", "chosen", "chosen"]
    assert rows[2].step_sizes["eta"] == 0.3
    for row in rows[:3]:
        runs = [Record.open(Path(run["run"])).history() for run in row.runs]
        accuracies = [history[-1]["accuracy"] for history in runs]
        assert row.accuracy == pytest.approx(sum(accuracies) / 2)
        assert row.measures["bias"] == pytest.approx(sum(h[-1]["bias"] for h in runs) / 2)
        assert len(row.rounds) == 2
    assert [run["state"] for run in rows[3].runs] == ["diverged", "diverged"]
    assert rows[3].accuracy is None
    assert main(["report", "c", "-o", "report.html"]) == 0
    assert "8 runs of 4 methods" in capsys.readouterr().out
    once: dict[str, Any] = {key: value for key, value in SMALL.items() if key != "seeds"}
    once |= {"algorithm": FedAvg(eta=0.1), "seed": 1}
    alone = tunefree.Run(seeded_linear(), blobs(), TEST, **once).finish()
    path = Path(rows[1].runs[1]["run"])
    assert Record.open(path).theta_sha256() == alone.theta_sha256


def seeded_linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(4, 3)


class StoppedError(Exception):
    pass


def test_the_same_call_resumes_and_other_data_are_other_runs() -> None:
    calls = []

    def stop(_: nn.Module) -> dict[str, float]:
        calls.append(1)
        if len(calls) == 8:  # in the second run
            raise StoppedError
        return {}

    with pytest.raises(StoppedError):
        compare("scaffold", out="c", evaluate=stop)
    states = {Record.open(path).state for path in Path("c").glob("*.sqlite")}
    assert states == {"done", "interrupted"}
    (again,), (whole,) = compare("scaffold", out="c"), compare("scaffold", out="d")
    assert (again.accuracy, again.loss) == (whole.accuracy, whole.loss)
    assert len(list(Path("c").glob("*.sqlite"))) == 2
    torch.manual_seed(0)
    fewer = [(x[:20], y[:20]) for x, y in blobs()]
    (other,) = tunefree.compare(["scaffold"], nn.Linear(4, 3), fewer, TEST, out="c", **SMALL)
    assert other.loss != whole.loss
    assert len(list(Path("c").glob("*.sqlite"))) == 4


def test_a_function_makes_another_model_for_each_seed() -> None:
    (row,) = tunefree.compare(
        {"no step": "polarfl"}, lambda: nn.Linear(4, 3), blobs(), out="c", **SMALL
    )
    assert row.method == "no step"
    first = [Record.open(Path(run["run"])).facts() for run in row.runs]
    assert first[0].identity["first model"] != first[1].identity["first model"]
    assert [facts.label for facts in first] == ["no step", "no step"]


def test_a_named_data_set_is_the_command_lines_comparison(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(batch, "run_all", run_here)
    given: dict[str, Any] = {
        "clients": 6,
        "per_round": 2,
        "local_steps": 1,
        "rounds": 3,
        "partition": "iid",
    }
    shared = search.settings(data="digits", **given)
    (row,) = search.compare([FedAvg(eta=0.1)], shared, [0], "a")
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in given.items()]
    assert main(["compare", "fedavg:eta=0.1", *flags, "--seeds", "0", "--out", "b"]) == 0
    theirs = [path.name for path in Path("b").glob("*.sqlite")]
    assert [Path(run["run"]).name for run in row.runs] == theirs  # the settings name it
    with pytest.raises(ConfigError, match="'mine' is your own, and worker processes know it"):
        search.compare([mine], shared)


@pytest.mark.filterwarnings("default:the formula gives beta")
def test_a_note_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    both: dict[str, Any] = {"by name": "padamfed", "by value": PAdaMFed()}
    tunefree.compare(both, nn.Linear(4, 3), blobs(), TEST, **SMALL, out="c")
    assert capsys.readouterr().err.count("the formula gives beta = 1") == 1


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ({"methods": "polarfl"}, "methods = 'polarfl' must be a list of methods"),
        ({"methods": ["polarfl", "polarfl"]}, "method polarfl is given 2 times"),
        ({"methods": ["polarfll"]}, "did you mean 'polarfl'?"),
        ({"roundz": 3}, "compare has no argument 'roundz'; did you mean 'rounds'?"),
        ({"seed": 3}, "compare has no argument 'seed'; did you mean 'seeds'?"),
        ({"delays": "mild"}, "compare has no argument 'delays'"),
        ({"partition": "iid"}, "compare takes a model and clients of your own"),
        ({"data_dir": "x"}, "compare takes a model and clients of your own"),
        (
            {"model": "mlp"},
            "compare takes a model and clients of your own, not model = 'mlp'; by name",
        ),
        (
            {"data": "digits"},
            "tunefree.search.compare(methods, tunefree.search.settings(data='digi",
        ),
        ({"rounds": 0}, "rounds = 0 is too small"),
    ],
)
def test_what_it_refuses(call: dict[str, Any], sentence: str) -> None:
    usual: dict[str, Any] = {"methods": ["polarfl"], "clients": blobs(), "out": "c"}
    usual["model"] = nn.Linear(4, 3)
    with pytest.raises(ConfigError) as error:
        tunefree.compare(**(usual | call))
    assert sentence in str(error.value)
    assert not Path("c").exists()


@pytest.mark.parametrize("more", [{}, {"data": "digits"}])
def test_a_tuned_method_is_not_compared_on_the_seed_it_was_tuned_with(more: dict[str, Any]) -> None:
    tuned = {"algorithm": "fedavg", "options": {"eta": 0.2}, "bill": {}, "seeds": [1000]}
    Path("tuned.json").write_text(json.dumps({**tuned, "settings": {}}))
    by_name = partial(search.compare, ["fedavg@tuned.json"], search.settings(**more), [0, 1000])
    act = by_name if more else partial(compare, "fedavg@tuned.json", seeds=(0, 1000))
    with pytest.raises(ConfigError, match="fedavg was tuned with seed 1000; compare it on other"):
        act()
    assert not list(Path().rglob("*.sqlite"))
