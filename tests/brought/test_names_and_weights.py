"""Names of clients and classes, and weights of samples, wherever they appear."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as f
from torch.utils.data import TensorDataset

import tunefree
from tunefree.cli import main
from tunefree.cli.show import overview
from tunefree.data.clients import apart, federation_from
from tunefree.derive import named_data, settings
from tunefree.errors import ConfigError, FleetError, WireError
from tunefree.methods import FedAvg
from tunefree.record import Record

RNG = torch.Generator().manual_seed(0)
X = [torch.randn(20, 3, generator=RNG) for _ in range(3)]
NAMES = np.array(["benign", "malign", "unclear"])
PAIRS = [(x, x.argmax(dim=1)) for x in X]
NAMED = dict(zip(("north", "south", "west"), PAIRS, strict=True))
SETTINGS: dict[str, Any] = {"rounds": 2, "local_steps": 2, "progress": False}


def model(outputs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, outputs)


def train(clients: Any, test: Any = None, **more: Any) -> Any:
    return tunefree.train(model(more.pop("outputs", 3)), clients, test, **SETTINGS | more)


def test_clients_keep_their_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(NAMED, out=tmp_path / "a.sqlite")
    assert run.theta_sha256 == train(PAIRS).theta_sha256
    rows = run.client_scores()
    assert [row["client"] for row in rows] == ["north", "south", "west"]
    assert str(tunefree.spread(rows)["worst_client"]) in NAMED
    other = dict(zip(("north", "east", "west"), PAIRS, strict=True))
    for given, called in ((other, "north, east, west"), (PAIRS, "nothing")):
        with pytest.raises(ConfigError, match=f"called north, south, west, and now.*{called}"):
            tunefree.resume(tmp_path / "a.sqlite", model(), given, rounds=4)
    again = tunefree.resume(tmp_path / "a.sqlite", model(), NAMED, rounds=4, progress=False)
    assert again.history[-1]["round"] == 4
    picture = tmp_path / "a.html"
    assert main(["report", str(tmp_path / "a.sqlite"), "-o", str(picture)]) == 0
    assert '"names":["north","south","west"]' in picture.read_text().replace(" ", "")


def test_a_client_in_quarantine_is_readmitted_by_its_name(tmp_path: Path) -> None:
    out = tmp_path / "a.sqlite"
    settings = SETTINGS | {"rounds": 12, "algorithm": FedAvg(eta=0.1), "attack": "scaled:1e6:1"}
    clients = {f"site {i}": PAIRS[i % 3] for i in range(8)}
    run = tunefree.train(model(), clients, out=out, **settings)
    (bad,) = run.record.quarantined()
    with closing(Record.open(out)) as record:
        assert record.summary().as_dict()["quarantined"] == [f"site {bad}"]
        assert {each["client"] for each in overview(record)["absent"]} == {f"site {bad}"}
    with pytest.raises(ConfigError, match=f"client moon is not in .*in quarantine now: site {bad}"):
        tunefree.Run.resume(out, model(), clients, rounds=14, readmit=["moon"])
    again = tunefree.Run.resume(out, model(), clients, rounds=14, readmit=[f"site {bad}"])
    assert again.record.quarantined() == []


def test_failures_name_the_client() -> None:
    def loss(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if not out.requires_grad or len(y) < 7:
            return f.cross_entropy(out, y)
        raise OSError("gone")

    with pytest.raises(FleetError, match=r"^client north failed in .*gone"):
        train(NAMED, loss=loss, batch_size=10, fleet="serial")


def test_a_loss_that_is_not_finite_names_the_client() -> None:
    x, y = PAIRS[0]
    with pytest.warns(UserWarning, match="have mean"), pytest.raises(WireError, match="t east is"):
        train({**NAMED, "east": (x * 1e30, y)}, loss=lambda out, y: f.cross_entropy(out**3, y))


def words(y: torch.Tensor) -> Any:
    return NAMES[y.numpy()]


def forms(x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
    """The same samples with words as targets, as people have them."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "label": words(y)})
    items = [(one, str(word)) for one, word in zip(x, words(y), strict=True)]
    rows = [{"x": one, "y": word} for one, word in items]
    as_category = frame.astype({"label": "category"})
    return {
        "array": (x, words(y)),
        "column of an array": (x, words(y)[:, None]),
        "objects": (x, words(y).astype(object)),
        "list": (x, words(y).tolist()),
        "series": (x, frame["label"]),
        "frame": frame,
        "categories": as_category,
        "pair with a name": (frame, "label"),
        "items": items,
        "rows": rows,
    }


@pytest.mark.parametrize("form", list(forms(*PAIRS[0])))
def test_words_are_classes(form: str) -> None:
    expected = train(PAIRS, PAIRS[0])
    clients = [forms(*pair)[form] for pair in PAIRS]
    run = train(clients, clients[0])
    assert run.record.facts().classes_named == NAMES.tolist()
    assert "classes 0 to 2: benign, malign, unclear" in run.summary()
    assert run.theta_sha256 == expected.theta_sha256
    assert run.history[-1]["accuracy"] == expected.history[-1]["accuracy"]


def test_classes_that_some_clients_lack_have_the_same_numbers(tmp_path: Path) -> None:
    clients = [(X[0][:2], ["c", "a"]), (X[1][:2], ["b", "b"])]
    federation = federation_from(clients, (X[2][:1], ["d"]))
    assert federation.labels == ("a", "b", "c", "d")
    assert federation.train.y.tolist() == [2, 0, 1, 1]
    assert federation.test is not None
    assert federation.test.y.tolist() == [3]
    out = tmp_path / "a.sqlite"
    train(clients, out=out)
    other = [clients[0], (X[1][:2], ["z", "z"])]
    with pytest.raises(
        ConfigError, match="classes called a, b, c, and now they are called a, c, z"
    ):
        tunefree.resume(out, model(), other, rounds=4)


class Labelled:
    """The interface of a Hugging Face data set whose label is a ClassLabel."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, *names: str) -> None:
        self.column_names = ["x", "label"]
        self.values: dict[str, Any] = {"x": x, "label": y.tolist()}
        self.features = {"x": None, "label": SimpleNamespace(names=list(names))}

    def __len__(self) -> int:
        return len(self.values["label"])

    def __getitem__(self, key: int | str) -> Any:
        if isinstance(key, str):
            return self.values[key]
        return {name: values[key] for name, values in self.values.items()}


def test_class_labels_are_names_and_change_no_number() -> None:
    names = ("unclear", "benign", "malign")  # in no order
    clients = [Labelled(x, y, *names) for x, y in PAIRS]
    federation = federation_from(clients, clients[0])
    assert federation.labels == names
    assert federation.train.y.tolist() == torch.cat([y for _, y in PAIRS]).tolist()
    assert apart(federation) is federation  # deployed clients number them alike
    run = train(clients)
    assert run.theta_sha256 == train(PAIRS).theta_sha256
    assert run.record.facts().classes_named == list(names)
    assert federation_from(clients, PAIRS[0]).labels == ()  # whose numbers may mean others
    with pytest.raises(ConfigError, match="different ClassLabels, so one number means several"):
        federation_from([clients[0], Labelled(*PAIRS[1], *sorted(names))])


W = [torch.rand(20, generator=RNG) * (torch.rand(20, generator=RNG) > 0.2) for _ in X]
WEIGHTED = [(x, y, w) for (x, y), w in zip(PAIRS, W, strict=True)]


def by_hand(clients: Any, eta: float, steps: int) -> torch.Tensor:
    """Plain gradient descent on the mean over clients of the weighted loss."""
    module = model()
    for _ in range(steps):
        module.zero_grad()
        for x, y, w in clients:
            losses = f.cross_entropy(module(x), y, reduction="none")
            ((w * losses).sum() / w.sum() / len(clients)).backward()  # type: ignore[no-untyped-call,unused-ignore]
        with torch.no_grad():
            for p in module.parameters():
                p.sub_(eta * p.grad)  # type: ignore[operator]
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


@pytest.mark.parametrize("loss", [None, nn.CrossEntropyLoss(), f.cross_entropy])
def test_training_and_reports_are_weighted(loss: Any) -> None:
    more = {"algorithm": FedAvg(eta=0.1), "local_steps": 1, "batch_size": 20, "rounds": 5}
    run = train(WEIGHTED, WEIGHTED[0], loss=loss, **more)
    torch.testing.assert_close(run.theta, by_hand(WEIGHTED, 0.1, 5))
    x, y, w = WEIGHTED[0]
    losses = f.cross_entropy(run.model(x), y, reduction="none")
    expected = float(((w * losses).sum() / w.sum()).detach())
    assert run.history[-1]["loss"] == pytest.approx(expected, rel=1e-5)
    assert run.client_scores()[0]["loss"] == pytest.approx(expected, rel=1e-5)
    assert run.history[-1]["accuracy"] == int((run.model(x).argmax(1) == y).sum()) / 20
    assert "samples have weights" in run.summary()


def test_equal_weights_are_no_weights() -> None:
    equal = [(x, y, torch.full((20,), 3.0)) for x, y in PAIRS]
    torch.testing.assert_close(train(equal).theta, train(PAIRS).theta)


def test_weights_are_found_in_frames_rows_and_data_sets() -> None:
    pandas = pytest.importorskip("pandas")
    named = [dict(zip("abc", x.T.numpy(), strict=True)) for x in X]
    frames = [
        pandas.DataFrame({**columns, "label": y, "sample_weight": w})
        for columns, (_, y, w) in zip(named, WEIGHTED, strict=True)
    ]
    rows = [
        [{"x": x[i], "y": int(y[i]), "sample_weight": float(w[i])} for i in range(20)]
        for x, y, w in WEIGHTED
    ]
    expected = train(WEIGHTED).theta_sha256
    pairs = [(frame.drop(columns="label"), frame["label"]) for frame in frames]
    for clients in (frames, pairs, rows, [TensorDataset(*each) for each in WEIGHTED]):
        assert train(clients).theta_sha256 == expected


def test_weighted_regression_in_original_units() -> None:
    clients = [(x, 1000 + 50 * x[:, 0], w) for x, w in zip(X, W, strict=True)]
    run = train(clients, clients[0], outputs=1, standardise=True, rounds=30)
    x, y, w = clients[0]
    expected = float((w * (run.model(x)[:, 0] - y) ** 2).sum().detach() / w.sum())
    assert run.history[-1]["loss"] == pytest.approx(expected, rel=1e-4)
    assert expected < 2500


@pytest.mark.parametrize(
    "loss",
    [nn.CrossEntropyLoss(torch.ones(3)), nn.CrossEntropyLoss(reduction="sum"), lambda out, y: out],
)
def test_a_loss_without_a_place_for_weights_is_refused(loss: Any) -> None:
    with pytest.raises(ConfigError, match=r"samples have weights.*|must be one number"):
        train(WEIGHTED, loss=loss)


def test_held_out_data_have_names_words_and_weights() -> None:
    x, y, w = WEIGHTED[0]
    clients = {"north": (x, words(y), w), "south": (X[1], words(PAIRS[1][1]), W[1])}
    held_out = {"south": (X[2], words(PAIRS[2][1])), "north": (x, words(y), w)}
    run = train(clients, client_test=held_out)
    for client in ("north", "south"):
        assert torch.equal(run.predict(x, client=client), run.predict(x))
    with pytest.raises(ConfigError, match="there is no client west; give north, south"):
        run.predict(x, client="west")
    losses = [
        f.cross_entropy(run.model(x), y, reduction="none").detach(),
        f.cross_entropy(run.model(X[2]), PAIRS[2][1], reduction="none").detach(),
    ]
    expected = ((w * losses[0]).sum() / w.sum() + losses[1].mean()) / 2
    assert run.history[-1]["client_loss"] == pytest.approx(float(expected), rel=1e-5)
    rows = run.personalise(steps=3)
    assert [row["client"] for row in rows] == ["north", "south"]
    with pytest.raises(ConfigError, match="or a dict with their names"):
        train(clients, client_test={"north": held_out["north"]})


def test_a_column_of_a_file_names_the_clients(tmp_path: Path) -> None:
    file = tmp_path / "patients.csv"
    rows = [f"{i % 9},{'bca'[i % 3]},{'ill' if i % 2 else 'well'}" for i in range(30)]
    file.write_text("\n".join(["age,hospital,state", *rows]))
    options = {"data_option.target": "state", "data_option.client_column": "hospital"}
    _, federation = named_data(settings(None, {"data": str(file), **options}))
    assert federation.names == ("a", "b", "c")
    assert federation.labels == ("ill", "well")
