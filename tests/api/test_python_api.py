"""What the Python API accepts and refuses, and the names that the library has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tunefree
from tests.api.test_run_object import SMALL, TEST, model, new_run
from tests.blobs import blobs
from tunefree import ConfigError
from tunefree.methods import FedAvg, PAdaMFed, PolarFL
from tunefree.wire import from_spec


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"roundz": 10}, "train has no argument 'roundz'; did you mean 'rounds'?"),
        ({"batchsize": 8}, "train has no argument 'batchsize'; did you mean 'batch_size'?"),
        ({"compresor": "sign"}, "train has no argument 'compresor'; did you mean 'compressor'?"),
        (
            {"algorithm": "fedavg", "lr": 0.1},
            "train has no argument 'lr'; give it to a method that takes it: "
            "algorithm=tunefree.methods.FedAvg(eta=0.1)",
        ),
        (
            {"algorithm": "scaffold", "learning_rate": 0.1},
            "train has no argument 'learning_rate'; give it to a method that takes it: "
            "algorithm=tunefree.methods.Scaffold(eta=0.1)",
        ),
        (
            {"algorithm": FedAvg(), "eta": 0.1},
            "takes it: algorithm=tunefree.methods.FedAvg(eta=0.1)",
        ),
        ({"mu": 0.1}, "takes it: algorithm=tunefree.methods.FedAvgM(mu=0.1)"),
        (
            {"learning_rate": 0.1},
            "train has no argument 'learning_rate', and PolarFL takes no step size: its gamma, ",
        ),
        (
            {"quux": 1},
            "train has no argument 'quux'; choose from accumulate, algorithm, attack, average",
        ),
        ({"algorithm": lambda _: None, "roundz": 1}, "'roundz'; did you mean 'rounds'?"),
        (
            {"algorithm": PAdaMFed(eta=0.1)},
            "omit it, or give explicit_steps=true to study what other steps would do",
        ),
        ({"rounds": 1.5}, "rounds = 1.5 must be a whole number"),
        ({"schedule": "bufered"}, "schedule = 'bufered' is not known"),
        ({"fleet": "cloud"}, "fleet = 'cloud' is not known"),
        ({"compressor": 3}, "compressor = 3 must be text"),
        ({"opening": "zero"}, "schedule=tunefree.Schedule(opening='zero')"),
    ],
)
def test_what_it_refuses(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        new_run(**given)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("function", "given", "sentence"),
    [
        (tunefree.resume, {"round": 7}, "resume has no argument 'round'; did you mean 'rounds'?"),
        (tunefree.Run.resume, {"per_round": 3}, "resume has no argument 'per_round'"),
        (tunefree.load, {"device": "cpu"}, "load has no argument 'device'; choose from best, cl"),
        (tunefree.partition.iid, {"client": 1}, "iid has no argument 'client'; did you mean 'cl"),
        (tunefree.spread, {"score": "x"}, "score = 'x' is not known; choose from loss"),
    ],
)
def test_every_function_refuses_what_it_does_not_have(
    function: Any, given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError) as error:
        function([{"client": 0, "n": 1, "loss": 1.0}], **given)
    assert sentence in str(error.value)


def test_nothing_to_compare_and_nothing_to_train() -> None:
    with pytest.raises(ConfigError, match=r"no rows; give those of Run.client_scores\(\)"):
        tunefree.spread([])
    with pytest.raises(ConfigError, match="'weight' is on the meta device and has no numbers"):
        tunefree.train(torch.nn.Linear(4, 3, device="meta"), blobs(), **SMALL)


def test_the_advice_about_steps_works() -> None:
    run = new_run(algorithm=PAdaMFed(eta=0.1), explicit_steps=True)
    assert run.algo.eta == 0.1  # type: ignore[attr-defined]


def test_a_plain_method_is_the_named_one_with_its_options(tmp_path: Path) -> None:
    given = new_run(algorithm=FedAvg(eta=0.3, weighting="examples"), out=tmp_path / "a.sqlite")
    facts = given.record.facts()
    assert (facts.algorithm, facts.option) == ("fedavg", {"eta": 0.3})
    assert facts.settings["weighting"] == "examples"
    next(iter(given))
    again = tunefree.resume(tmp_path / "a.sqlite", model(), blobs(), TEST, progress=False)
    assert (
        again.theta_sha256
        == new_run(algorithm=FedAvg(eta=0.3, weighting="examples")).finish().theta_sha256
    )
    assert again.theta_sha256 != new_run(algorithm="fedavg").finish().theta_sha256
    assert (
        new_run(algorithm=FedAvg).finish().theta_sha256
        == new_run(algorithm="fedavg").finish().theta_sha256
    )


def test_a_plain_methods_compressor_is_stored(tmp_path: Path) -> None:
    sign = new_run(algorithm="polarfl", compressor="sign", out=tmp_path / "a.sqlite").finish()
    plain = new_run(algorithm=PolarFL(C=from_spec("sign"))).finish()
    assert plain.theta_sha256 == sign.theta_sha256
    assert plain.record.facts().settings["compressor"] == "sign"


def test_numbers_and_devices_as_other_libraries_give_them() -> None:
    usual = new_run(rounds=6, algorithm=FedAvg(eta=0.5))
    numpys = new_run(
        **{"rounds": np.int64(6), "per_round": np.int32(3), "device": torch.device("cpu")},
        **{"algorithm": FedAvg(eta=np.float64(0.5)), "seed": np.uint8(0)},
    )
    assert numpys.finish().theta_sha256 == usual.finish().theta_sha256
    assert numpys.record.facts().seed == 0


def test_no_seed_is_another_one_each_time_and_is_stored(tmp_path: Path) -> None:
    one, two = (new_run(seed=None, rounds=3, out=tmp_path / f"{n}.sqlite").finish() for n in "ab")
    seeds = [run.record.facts().seed for run in (one, two)]
    assert seeds[0] != seeds[1]
    assert new_run(seed=seeds[0], rounds=3).finish().theta_sha256 == one.theta_sha256


def test_a_schedule_by_its_name() -> None:
    named = new_run(schedule="buffered", algorithm="fedbuff").finish()
    given = new_run(schedule=tunefree.Schedule("buffered"), algorithm="fedbuff").finish()
    assert named.theta_sha256 == given.theta_sha256


def test_a_file_that_exists_is_resumed_in_python(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    new_run(out=path)
    with pytest.raises(ConfigError) as error:
        new_run(out=path)
    assert str(error.value).startswith(f"out = '{path}' exists already")
    advice = f"tunefree.resume({str(path)!r}, model, clients, test)"
    assert advice in str(error.value)
    names = {"tunefree": tunefree, "model": model(), "clients": blobs(), "test": TEST}
    run = eval(advice, names)
    assert run.theta_sha256 == new_run().finish().theta_sha256


def test_another_test_set_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    for _ in new_run(out=path):
        break
    x, y = TEST
    for other in (None, (x[1:], y[1:]), blobs(1, 60, seed=3)[0]):
        with pytest.raises(ConfigError, match="its test set was .*; give what it was started with"):
            tunefree.resume(path, model(), blobs(), other, progress=False)
    assert tunefree.resume(path, model(), blobs(), TEST, progress=False).history[-1]["round"] == 9


def test_another_initial_model_is_refused_with_the_usual_cause(tmp_path: Path) -> None:
    new_run(out=tmp_path / "a.sqlite")
    with pytest.raises(ConfigError, match=r"its first model was .* \(torch.manual_seed before mak"):
        tunefree.resume(tmp_path / "a.sqlite", torch.nn.Linear(4, 3), blobs(), TEST)


def test_the_identity_of_a_run_has_data_model_and_steps(tmp_path: Path) -> None:
    """What a report needs to distinguish runs without names."""

    def identity(**more: Any) -> dict[str, Any]:
        return dict(new_run(**more).record.facts().identity)

    usual = identity(algorithm=FedAvg(eta=0.1))
    assert usual == identity(algorithm=FedAvg(eta=0.1))
    other = identity(algorithm=FedAvg(eta=0.2))
    assert {key for key in usual if usual[key] != other[key]} == {"option", "steps"}
    data = tunefree.Run(model(), blobs(n=20), TEST, **SMALL, algorithm=FedAvg(eta=0.1))
    theirs = data.record.facts().identity
    assert {key for key in usual if usual[key] != theirs[key]} == {"clients' data", "inputs"}


def test_the_names_of_the_library() -> None:
    assert tunefree.__version__
    assert set(tunefree.__all__) <= set(dir(tunefree))
    for name in tunefree.__all__:
        assert hasattr(tunefree, name)
    names: dict[str, Any] = {}
    exec("from tunefree import *", names)
    assert {"Run", "train", "load", "compare", "Exchange", "unit", "TunefreeError"} <= set(names)
    with pytest.raises(AttributeError, match="no attribute 'fit'"):
        _ = tunefree.fit  # type: ignore[attr-defined]
    for error in (tunefree.WireError, tunefree.FleetError, tunefree.RecordError, ConfigError):
        assert issubclass(error, tunefree.TunefreeError)
    assert isinstance(tunefree.partition.dirichlet, type(new_run))


def test_its_names_cost_no_torch() -> None:
    code = "import sys, tunefree as t; dir(t), t.__version__; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_train_has_the_help_of_a_function() -> None:
    assert tunefree.train.__name__ == "train"
    assert "clients" in (tunefree.train.__doc__ or "")
