"""A user's own method can be used wherever one of ours can."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tunefree
from tunefree import methods
from tunefree.cli import main
from tunefree.errors import ConfigError
from tunefree.methods import FedAvg
from tunefree.record import Record
from tunefree.search.method_spec import parse_method
from tunefree_evidence.baselines.delta_sgd import DeltaSGD

MODULE = '''
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from tunefree.methods.fedavg import FedAvg
from tunefree.core import OPEN, About, Exchange, Method, Step, Vec, mean


class Server(NamedTuple):
    theta: Vec


class Down(NamedTuple):
    theta: Vec


class Up(NamedTuple):
    delta: Vec


@dataclass(frozen=True)
class Mine(Method):
    eta: float = 0.1
    times: int = 1
    rule: Literal["a", "b"] = "a"

    about: ClassVar[About] = About("Mine", "own", "us", grid={"eta": (0.01, 0.1)}, weights="mean")

    def server(self, theta0):
        return Server(theta0)

    def round(self):
        return (Exchange(Down, Up, lambda s: Down(s.theta), self.local, self.aggregate),)

    def local(self, client, down, F):
        D = 0 * down.theta
        for _ in range(self.sys.K):
            D = D + F.grad(down.theta - self.eta * D, F.draw())
        return client, Up(self.times * self.eta * D)

    def aggregate(self, s, replies):
        return Server(s.theta - mean(r.up.delta for r in replies))


@dataclass(frozen=True)
class Free(Mine):
    """Tuning-free: its step follows from K."""

    eta: float = OPEN

    about: ClassVar[About] = About("Free", steps={"eta": Step("1 / K", lambda K: 1 / K)})


def half(sys):
    return FedAvg(eta=0.05)


tenth = Mine(eta=0.1)
free = Free()


class Stranger:
    eta: float = 0.1


class NotFrozen(Mine):
    eta: float = 0.3


@dataclass(frozen=True)
class Partial(Method):
    eta: float = 0.1


value = 3


def total(sys):
    return sum(sys)
'''
TEXT: Any = {"eta": "0.1"}
SIZE: Any = {"weighting": "size"}
SMALL = (*("--clients", "6", "--per-round", "3", "--rounds", "4"), *("--eval-every", "2"))
TINY = (*SMALL, "--local-steps", "2")


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module in the user's working folder."""
    (tmp_path / "own_methods.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    importlib.invalidate_caches()
    yield
    sys.modules.pop("own_methods", None)


def told(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    assert main([*argv, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def fit(**settings: Any) -> Any:
    torch.manual_seed(0)
    clients = [(torch.randn(20, 4), torch.randint(3, (20,))) for _ in range(5)]
    usual: dict[str, Any] = {"rounds": 4, "local_steps": 2, "progress": False}
    return tunefree.train(nn.Linear(4, 3), clients, **(usual | settings))


def test_the_command_line_runs_and_resumes_it(capsys: pytest.CaptureFixture[str]) -> None:
    mine = told(capsys, "run", *TINY, "--algorithm", "own_methods:Mine", "--out", "a.sqlite")
    ours = told(capsys, "run", *TINY, "--algorithm", "fedavg", "--out", "b.sqlite")
    assert mine["theta_sha256"] == ours["theta_sha256"]
    assert mine["algorithm"] == "own_methods:Mine"
    assert mine["steps"] == {"eta": 0.1}
    facts = Record.open(Path("a.sqlite")).facts()
    assert (facts.algorithm, facts.title) == ("own_methods:Mine", "Mine")
    more = told(capsys, "run", "--resume", "a.sqlite", "--rounds", "6")
    assert more["theta_sha256"] != mine["theta_sha256"]


def test_options_and_a_toml_file(capsys: pytest.CaptureFixture[str]) -> None:
    text = 'algorithm = "own_methods:Mine"\noption.eta = 1\nweighting = "examples"\n'
    Path("mine.toml").write_text(text)
    run = told(capsys, "run", "mine.toml", *TINY)
    assert run["steps"] == {"eta": 1.0}
    assert "own_methods_Mine-digits" in run["run"]
    flags = ("--algorithm", "fedavg", "--set", "option.eta=1", "--weighting", "examples")
    ours = told(capsys, "run", *TINY, *flags)
    theirs = Record.open(Path(run["run"])).history()[-1]["loss"]
    assert ours["loss"] == pytest.approx(theirs, rel=1e-4)


def test_a_tuning_free_one_takes_its_steps_from_theory(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "run", *TINY, "--algorithm", "own_methods:Free")["steps"] == {"eta": 0.5}
    flags = ("--algorithm", "own_methods:Free", "--set", "option.eta=0.1")
    assert main(["run", *TINY, *flags]) == 2
    assert "but Free takes no step size" in capsys.readouterr().err
    epochs = told(capsys, "run", *SMALL, "--algorithm", "own_methods:Free", "--local-epochs", "1")
    assert epochs["steps"]["eta"] == 1 / epochs["system"]["K"]


def test_compare_tune_and_sweep_take_it(capsys: pytest.CaptureFixture[str]) -> None:
    methods = (
        "own_methods:Mine:eta=0.05",
        "own_methods:half",
        "fedavg:eta=0.05",
        "own_methods:Free",
    )
    seeds = ("--seeds", "0", "--workers", "1")
    mine, made, ours, free = told(capsys, "compare", *methods, *TINY, *seeds)["methods"]
    assert mine["method"] == "own_methods:Mine:eta=0.05"
    assert mine["loss"] == made["loss"] == ours["loss"]
    assert (mine["step_sizes"], mine["steps"]) == ({"eta": 0.05}, "chosen")
    assert (free["step_sizes"], free["steps"]) == ({"eta": 0.5}, "from theory")
    tuned = told(capsys, "tune", "own_methods:Mine", *TINY, "--no-extend", "--workers", "1")
    assert tuned["grid"] == {"eta": [0.01, 0.1]}
    path = str(next(Path("runs").glob("tune-own_methods.Mine-*/tuned.json")))
    (again,) = told(capsys, "compare", f"own_methods:Mine@{path}", *TINY, *seeds)["methods"]
    assert (again["method"], again["steps"]) == ("own_methods:Mine@tuned", "tuned")
    over = ("--over", "eta", "--values", "0.01", "0.1", "--workers", "1")
    swept = told(capsys, "sweep", "own_methods:Free", *over, *TINY)
    assert swept["theory"] == 0.5


def test_check_takes_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "own_methods:Mine"]) == 0
    assert main(["check", "own_methods:Partial"]) == 1
    assert "it has no `round` and no `server`" in capsys.readouterr().out


def mine(**options: Any) -> Any:
    """A function that makes the user's method, when its module is there."""
    return partial(lambda: importlib.import_module("own_methods").Mine(**options))


def test_in_python_by_name_by_class_and_on_a_pool() -> None:
    named = fit(algorithm="own_methods:Mine")
    Mine = importlib.import_module("own_methods").Mine
    assert named.theta_sha256 == fit(algorithm=Mine).theta_sha256
    assert named.theta_sha256 == fit(algorithm=Mine(eta=0.1)).theta_sha256
    assert named.theta_sha256 == fit(algorithm="own_methods:tenth").theta_sha256
    assert named.theta_sha256 == fit(algorithm=FedAvg(eta=0.1)).theta_sha256
    assert named.theta_sha256 != fit(algorithm=Mine(eta=0.2)).theta_sha256
    pool = fit(algorithm=Mine(eta=0.1), fleet="pool", workers=1)
    assert pool.theta_sha256 == named.theta_sha256
    weighed = fit(algorithm=Mine(eta=0.1), weighting="examples")
    assert torch.allclose(weighed.theta, named.theta, rtol=1e-4)  # all have 20


def test_a_run_with_a_class_resumes_when_it_is_given_again(tmp_path: Path) -> None:
    sys.path.append(str(tmp_path))
    Mine = importlib.import_module("own_methods").Mine
    torch.manual_seed(0)
    clients = [(torch.randn(20, 4), torch.randint(3, (20,))) for _ in range(5)]
    model = nn.Linear(4, 3)
    choices: dict[str, Any] = {"local_steps": 2, "progress": False, "algorithm": Mine(eta=0.2)}
    tunefree.train(model, clients, rounds=3, out=tmp_path / "a.sqlite", **choices)
    more = tunefree.resume(
        tmp_path / "a.sqlite", model, clients, algorithm=Mine(eta=0.2), rounds=5, progress=False
    )
    assert more.theta_sha256 == tunefree.train(model, clients, rounds=5, **choices).theta_sha256


def test_a_value_is_what_its_user_chose() -> None:
    named = fit(algorithm=methods.FedAvg(eta=0.2))
    assert named.theta_sha256 != fit(algorithm="fedavg").theta_sha256
    sys.path.append(".")
    own = importlib.import_module("own_methods")
    for value in (own.Mine(eta=0.2), lambda sys: methods.FedAvg(eta=0.2)):
        assert fit(algorithm=value).theta_sha256 == named.theta_sha256
    assert fit(algorithm="own_methods:tenth").record.facts().steps == {"eta": 0.1}
    assert fit(algorithm=methods.FedAvg(eta=1)).record.facts().steps == {"eta": 1.0, "s": 1.0}


def test_a_tuning_free_value_leaves_its_steps_to_the_formulas() -> None:
    named = fit(algorithm="padamfed", rounds=12)
    assert fit(algorithm=methods.PAdaMFed(), rounds=12).theta_sha256 == named.theta_sha256
    study: dict[str, Any] = {"explicit_steps": True, "rounds": 12}
    other = fit(algorithm=methods.PAdaMFed(eta=0.3), **study)
    assert other.algo.eta == 0.3
    assert other.algo.gamma == named.algo.gamma
    assert fit(algorithm="own_methods:free").record.facts().steps == {"eta": 0.5}


def test_a_value_has_its_compressor() -> None:
    named = fit(algorithm="polarfl", compressor="top:0.3")
    value = methods.PolarFL(C=methods.compressor("top:0.3"))
    assert fit(algorithm=value).theta_sha256 == named.theta_sha256
    with pytest.raises(ConfigError, match=r"write tunefree.methods.compressor\('sign'\)"):
        methods.PolarFL(C="sign")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"algorithm": "no_such_module:X"}, "could not be imported: No module named"),
        ({"algorithm": "own_methods:Nobody"}, "has no attribute 'Nobody'"),
        ({"algorithm": "own_methods:value"}, "is not an algorithm: it is a int; name a class"),
        ({"algorithm": "own_methods:NotFrozen"}, "NotFrozen is not a frozen dataclass; write @d"),
        ({"algorithm": "own_methods:Stranger"}, "Stranger is not a tunefree.Method; write class S"),
        ({"algorithm": "own_methods:Partial"}, "it has no `round` and no `server`; a method has"),
        ({"algorithm": "own_methods:Mine", "etta": 1}, "train has no argument 'etta'"),
        ({"algorithm": mine(times=0.5)}, "times = 0.5 must be a whole"),
        ({"algorithm": mine(rule="c")}, "rule = 'c' is not known"),
        ({"algorithm": mine(eta=float("nan"))}, "is not finite"),
        ({"algorithm": "own_methods:Free", "weighting": "examples"}, "Free cannot weight clients"),
        ({"algorithm": "own_methods:len"}, "has no attribute 'len'"),
        (
            {"algorithm": "own_methods:total"},
            "does not make an algorithm: int is not a tunefree.Method",
        ),
        (
            {"algorithm": methods.PAdaMFed(eta=0.3)},
            "but PAdaMFed takes no step size: its eta",
        ),
        ({"algorithm": DeltaSGD(delta=0.2)}, "but Delta-SGD takes no step size"),
        ({"algorithm": methods.FedAvg(eta=-1.0)}, "is out of range; give a positive finite number"),
        ({"algorithm": methods.FedAvg(**TEXT)}, "is not a number; give a positive number"),
        ({"algorithm": methods.FedAvg(**SIZE)}, "weighting = 'size' is not known"),
        ({"algorithm": "fedavgg"}, "or package.module:Name for your own"),
    ],
)
def test_errors_are_clear(given: dict[str, Any], sentence: str) -> None:
    if isinstance(given["algorithm"], partial):  # its module is here now
        sys.path.append(str(Path.cwd()))
        given = {"algorithm": given["algorithm"]()}
    with pytest.raises(ConfigError) as error:
        fit(**given)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("text", "name", "options", "file"),
    [
        ("own_methods:Mine", "own_methods:Mine", {}, None),
        ("own_methods:Mine:eta=0.1,times=2", "own_methods:Mine", {"eta": 0.1, "times": 2}, None),
        ("own_methods:Mine@a/b.json:eta=1", "own_methods:Mine", {"eta": 1}, Path("a/b.json")),
        ("fedavg:eta=0.1", "fedavg", {"eta": 0.1}, None),
        ("comparfrefl:compressor=top:0.05", "comparfrefl", {"compressor": "top:0.05"}, None),
    ],
)
def test_a_method_may_be_ones_own(text: str, name: str, options: Any, file: Path | None) -> None:
    method = parse_method(text)
    assert (method.name, method.options, method.tuned) == (name, options, file)


def test_an_option_without_a_value_is_no_module() -> None:
    with pytest.raises(ConfigError, match="'fedavg:eta' must look like NAME"):
        parse_method("fedavg:eta")
