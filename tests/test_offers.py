"""What any installed package offers by name: data sets, networks and methods."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.site.commands import FEW
from tunefree import check_algorithm, models, train
from tunefree.cli import main
from tunefree.data import load
from tunefree.errors import ConfigError
from tunefree.importing import EVIDENCE, offers
from tunefree.methods import registry

MODULE = """
import torch
from torch import nn
from tunefree.data import Source, load as load_named
from tunefree.methods.fedavg import FedAvg as Mean


def patients(n=60):
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    return [(x[i::3], y[i::3]) for i in range(3)]


def wards(beds=2):
    return load_named("digits")._replace(name="wards")


def small(input_shape, classes, hidden=2):
    first, last = nn.Linear(input_shape[-1], hidden), nn.Linear(hidden, classes)
    return nn.Sequential(nn.Flatten(), first, last)


WARDS = Source("wards", "digits again", 1438, 359, 10, "mlp", "nobody", "none", wards)
"""
OFFERS = """
[tunefree.data]
patients = hospital_data:patients
wards = hospital_data:WARDS
lost = hospital_data:lost

[tunefree.models]
small-net = hospital_data:small
gone = hospital_data_that_is_gone:net

[tunefree.methods]
mean = hospital_data:Mean
"""


def install(folder: Path, package: str, offered: str) -> None:
    """Metadata as pip would write it."""
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(offered)


@pytest.fixture
def hospital(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package `hospital-data`, in a folder to work in."""
    (tmp_path / "hospital_data.py").write_text(MODULE)
    install(tmp_path, "hospital-data", OFFERS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "hospital_data", raising=False)
    return tmp_path


def test_all_three_train_by_their_names(hospital: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--data", "patients", "--model", "small-net", "--algorithm", "mean"]
    options = ["--set", "option.eta=0.1", "--set", "model_option.hidden=3"]
    few = ["--per-round", "2", "--rounds", "3", "--local-steps", "1", "--out", "run.sqlite"]
    argv = [*words, *options, *few, "--set", "data_option.n=90", "--format", "json"]
    assert main(["run", *argv]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["accuracy"] is not None
    assert main(["show", "run.sqlite"]) == 0
    assert "patients" in capsys.readouterr().out
    assert main(["run", "--resume", "run.sqlite", "--rounds", "4", "--format", "json"]) == 0


def test_a_function_is_like_the_users_own_and_its_clients_are_natural(hospital: Path) -> None:
    data = load("patients", n=90)
    assert (data.name, data.classes) == ("patients", 2)
    assert data.groups is not None
    assert set(data.groups.tolist()) == {0, 1, 2}
    with pytest.raises(ConfigError, match="has no option 'm'"):
        load("patients", m=90)


def test_a_method_runs_in_python_and_beside_ours(
    hospital: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clients = [(torch.randn(20, 4), torch.randint(2, (20,))) for _ in range(3)]
    model = torch.nn.Linear(4, 2)
    runs = [
        train(model, clients, algorithm=name, rounds=2, progress=False)
        for name in ("mean", "fedavg")
    ]
    assert runs[0].theta_sha256 == runs[1].theta_sha256
    assert registry.find("mean") is registry.REGISTRY["fedavg"]
    assert main(["compare", "mean:eta=0.1", *FEW, "--seeds", "0", "--out", "runs"]) == 0
    assert "mean:eta=0.1" in capsys.readouterr().out
    assert check_algorithm("mean") == []


def test_the_list_says_who_offers_what_and_what_is_broken(
    hospital: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "list", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    rows = {row["name"]: row for row in json.loads(out)}
    assert rows["digits"]["package"] == "tunefree"
    assert (rows["wards"]["package"], rows["wards"]["train"]) == ("hospital-data", 1438)
    assert rows["patients"]["about"] == "what hospital_data:patients returns"
    assert "lost" not in rows
    assert "data = 'lost' is offered by the package hospital-data, but hospital_data:lost" in err
    assert main(["data", "list"]) == 0
    assert "hospital-data" in capsys.readouterr().out
    assert main(["data", "show", "patients"]) == 0
    assert "own data" in capsys.readouterr().out
    assert main(["data", "get", "wards", "--set", "data_option.beds=3"]) == 0
    assert capsys.readouterr().out == "wards: 1,438 train, 359 test samples\n"


def test_a_broken_offer_is_one_sentence(hospital: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--model", "gone", "--data", "digits"]) == 2
    err = capsys.readouterr().err
    assert err == (
        "tunefree: --model gone is offered by the package hospital-data, but "
        "hospital_data_that_is_gone:net could not be imported: No module named "
        "'hospital_data_that_is_gone'; install that package again, or remove it\n"
    )
    (hospital / "hospital_data.py").write_text("1 / 0")
    with pytest.raises(ConfigError, match=r"ZeroDivisionError: division by zero \(hospital_data"):
        registry.find("mean")


def test_nothing_is_imported_before_it_is_asked_for(hospital: Path) -> None:
    assert {offer.name for offer in offers("data")} >= {"patients", "wards"}
    load("digits")
    models.build("mlp", (4,), 2)
    assert "hospital_data" not in sys.modules


def test_a_name_that_two_packages_offer_is_refused(hospital: Path) -> None:
    install(hospital, "other-data", "[tunefree.models]\nsmall-net = other:net\n")
    with pytest.raises(ConfigError, match="by the packages hospital-data and other-data; remove"):
        models.build("small-net", (4,), 2)


def test_our_own_names_stay_ours(hospital: Path) -> None:
    install(hospital, "other-data", "[tunefree.data]\ndigits = hospital_data:patients\n")
    assert len(load("digits").train) == 1438


def test_names_of_the_evidence_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tunefree.importing.entry_points", lambda group: [])
    makers: dict[str, Callable[[str], object]] = {
        "data": load,
        "model": lambda name: models.build(name, (4,), 2),
        "algorithm": registry.find,
    }
    for setting, make in makers.items():
        for name in EVIDENCE[setting].split():
            with pytest.raises(ConfigError, match=r"tunefree-evidence, .*`pip install ./evidence`"):
                make(name)
    with pytest.raises(ConfigError, match="did you mean 'digits'"):
        load("digit")
    assert main(["compare", "polarfl", "fedmuon", *FEW]) == 2
    assert "fedmuon is offered by the package tunefree-evidence" in capsys.readouterr().err


def test_the_evidence_offers_what_is_said_and_a_value_is_known_by_its_name() -> None:
    for setting, names in EVIDENCE.items():
        ours = {each.name for each in offers(setting) if each.package == "tunefree-evidence"}
        assert ours == set(names.split())
    for name in EVIDENCE["algorithm"].split():
        assert registry.name_of(registry.find(name)) == name  # type: ignore[arg-type]
    assert registry.name_of(registry.REGISTRY["fedavg"]) == "fedavg"


def test_the_list_of_methods_says_who_offers_them(
    hospital: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (hospital / "hospital_data-1.0.dist-info" / "entry_points.txt").open("a") as file:
        file.write("broken = hospital_data_that_is_gone:Method\n")
    assert main(["methods", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    rows = {row["name"]: row for row in json.loads(out)}
    assert [rows[name]["package"] for name in ("fedavg", "mean")] == ["tunefree", "hospital-data"]
    assert "note: algorithm = 'broken' is offered by the package hospital-data, but" in err
