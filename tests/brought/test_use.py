"""What a trained run is used for, and how its local steps are made: numbers as in plain torch."""

from __future__ import annotations

import copy
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as f

import tunefree
from tunefree.cli import main
from tunefree.errors import ConfigError
from tunefree.methods import FedAvg
from tunefree.record import Record
from tunefree.run.run import prepare
from tunefree.settings import load

RNG = torch.Generator().manual_seed(0)


def drawn(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(n, 4, generator=RNG)
    return x, (x[:, :3] + 0.5 * torch.randn(n, 3, generator=RNG)).argmax(1)


CLIENTS, HELD_OUT = [drawn(n) for n in (12, 9, 15)], [drawn(n) for n in (5, 8, 4)]
USUAL: dict[str, Any] = {"rounds": 6, "local_steps": 2, "progress": False, "fleet": "serial"}


def dense(outputs: int = 3) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(4, outputs)


def train(model: nn.Module, clients: Any = CLIENTS, **more: Any) -> Any:
    return tunefree.train(model, clients, **USUAL | more)


def weight_of(model: nn.Module) -> torch.Tensor:
    return model.get_parameter("weight").detach()


def scores_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
    with torch.no_grad():
        out = model(x)
        return float((out.argmax(1) == y).float().mean()), float(f.cross_entropy(out, y))


def test_each_clients_held_out_data_are_scored_at_evaluations(tmp_path: Path) -> None:
    file = tmp_path / "a.sqlite"
    run = train(dense(), client_test=HELD_OUT, eval_every=2, out=file)
    assert [row["round"] for row in run.history if "client_loss" in row] == [0, 2, 4, 6]
    accuracy, loss = zip(*(scores_of(run.model, x, y) for x, y in HELD_OUT), strict=True)
    row = run.history[-1]
    assert row["client_accuracy"] == pytest.approx(sum(accuracy) / 3)
    assert row["client_loss"] == pytest.approx(sum(loss) / 3)
    assert row["client_accuracy_worst_tenth"] == pytest.approx(min(accuracy))
    assert row["client_loss_worst_tenth"] == pytest.approx(max(loss))
    with pytest.warns(UserWarning, match="client_accuracy.*again: evaluate=..., or client_test"):
        tunefree.resume(file, dense(), CLIENTS, rounds=7, progress=False)
    again = tunefree.resume(file, dense(), CLIENTS, client_test=HELD_OUT, rounds=8, progress=False)
    assert "client_loss" in again.history[-1]
    for wrong, message in (
        (HELD_OUT[:2], "client_test is 2, and there are 3 clients"),
        (HELD_OUT[0], "client_test is 2, and there are 3 clients"),
        ([*HELD_OUT[:2], (torch.zeros(0, 4), torch.zeros(0).long())], r"client_test\[2\] has no"),
        ([*HELD_OUT[:2], (torch.zeros(1, 5), torch.zeros(1).long())], r"client_test\[2\] has inp"),
    ):
        with pytest.raises(ConfigError, match=message):
            train(dense(), client_test=wrong)
    with pytest.raises(ConfigError, match="scores that are computed on clients' own data are not"):
        train(dense(), client_test=HELD_OUT, privacy=tunefree.Privacy(epsilon=8))


def test_a_share_of_each_clients_samples_can_be_held_out(tmp_path: Path) -> None:
    one = (CLIENTS[0][0][:1], CLIENTS[0][1][:1])  # too few to hold out any
    clients, file = [*CLIENTS, one], tmp_path / "a.sqlite"
    run = train(dense(), clients, client_test=0.2, eval_every=2, out=file, per_round=3)
    federation = run._here.federation
    aside = federation.held_out.parts
    for given, kept, own in zip(clients, federation.parts, aside, strict=True):
        n = len(given[1])
        assert len(own) == min(-(-n // 5), n - 1)
        assert len({*kept.tolist(), *own.tolist()}) == n == len(kept) + len(own)
    scores = [scores_of(run.model, *federation.train.batch(index)) for index in aside if len(index)]
    row = run.history[-1]
    assert row["client_accuracy"] == pytest.approx(sum(a for a, _ in scores) / 3)
    assert row["client_loss_worst_tenth"] == pytest.approx(max(loss for _, loss in scores))
    assert len(run.personalise(steps=2)) == 3
    again = tunefree.resume(file, dense(), clients, rounds=8, progress=False)
    whole = train(dense(), clients, client_test=0.2, eval_every=2, rounds=8, per_round=3)
    assert again.theta_sha256 == whole.theta_sha256
    assert again.history[-1]["client_loss"] == whole.history[-1]["client_loss"]
    with pytest.raises(ConfigError, match="client_test = 0.2 holds out nothing"):
        train(dense(), [one, one], client_test=0.2)


def test_a_share_is_held_out_of_data_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--clients", "5", "--rounds", "2", "--per-round", "2", "--local-steps", "1"]
    file, toml = tmp_path / "a.sqlite", tmp_path / "own.toml"
    toml.write_text("client_test = 0.2\n")
    assert main(["run", *small, "--client-test", "0.2", "--out", str(file)]) == 0
    other = ["--out", str(tmp_path / "b.sqlite")]
    assert main(["run", str(toml), *small, *other]) == 0
    with closing(Record.open(file)) as one, closing(Record.open(tmp_path / "b.sqlite")) as two:
        assert one.facts().identity == two.facts().identity
        for name in ("accuracy", "loss", "accuracy_worst_tenth", "loss_worst_tenth"):
            assert f"client_{name}" in one.history()[-1]
    with pytest.raises(ConfigError, match="scores that are computed on clients' own data are not"):
        prepare(load(None, {"client_test": 0.2, "epsilon": 8, "rounds": 2, "clients": 10}))
    assert main(["run", "--client-test", "1"]) == 2
    assert "--client-test 1.0 is too large; it must be below 1" in capsys.readouterr().err


def test_the_worst_tenth_is_the_mean_of_the_worst() -> None:
    rows: Any = [{"client": c, "accuracy": (7 * c % 20) / 20, "loss": c / 10} for c in range(20)]
    assert tunefree.spread(rows)["worst_tenth"] == pytest.approx(0.025)
    assert tunefree.spread(rows, "loss")["worst_tenth"] == pytest.approx(1.85)


def test_a_step_size_makes_personalising_sgd_and_without_one_it_is_tuned_to_nothing() -> None:
    run = train(dense(), client_test=HELD_OUT, batch_size=20)
    model, before = run.model, run.theta_sha256
    for eta in (0.2, None):
        rows = run.personalise(steps=3, eta=eta)
        for row, (x, y), test in zip(rows, CLIENTS, HELD_OUT, strict=True):
            mine = copy.deepcopy(model)
            for k in range(3):
                mine.zero_grad()
                torch.autograd.backward(f.cross_entropy(mine(x), y))
                path = 3**0.25 / 10**0.75 * 2 * (3 - k) / (3 * 4)
                for p, start in zip(mine.parameters(), dense().parameters(), strict=True):
                    assert p.grad is not None
                    own = float(path * start.detach().norm() / p.grad.norm())
                    p.data -= (eta or own) * p.grad
            found = [row[f"{name}_after"] for name in ("accuracy", "loss")]
            assert found == pytest.approx(scores_of(mine, *test), rel=1e-4)
            found = [row[f"{name}_before"] for name in ("accuracy", "loss")]
            assert found == pytest.approx(scores_of(model, *test), rel=1e-5)
    assert run.theta_sha256 == before
    with pytest.raises(ConfigError, match=r"give them to the run: client_test=\[...\]"):
        train(dense()).personalise()


def test_predictions_are_those_of_the_model_in_batches_and_original_units() -> None:
    x = torch.randn(450, 4, generator=RNG)
    run = train(dense())
    torch.testing.assert_close(run.predict(x), run.model(x).detach())
    torch.testing.assert_close(run.predict(x.numpy().astype("float64")), run.predict(x))
    assert run.predict(x[:1]).shape == (1, 3)
    prices = [(a, 3e5 + 1e5 * a.sum(1)) for a, _ in CLIENTS]
    run = train(dense(1), prices, standardise=True)
    torch.testing.assert_close(run.predict(x), run.model(x).detach())
    assert run.predict(x).mean() > 1e5

    class Sum(nn.Linear):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:  # type: ignore[override]
            return {"logits": super().forward(a + b)}

    run = train(Sum(4, 3), [((a, 2 * a), y) for a, y in CLIENTS])
    torch.testing.assert_close(run.predict({"a": x, "b": x}), run.model(x, x)["logits"].detach())
    with pytest.raises(ConfigError, match="inputs of lengths"):
        run.predict((x, x[:3]))


def test_frames_are_predicted_with_their_columns_in_the_order_of_training() -> None:
    pandas = pytest.importorskip("pandas")
    x, y = CLIENTS[0]
    frame = pandas.DataFrame(x.numpy(), columns=list("abcd")).assign(label=y.numpy())
    run = train(dense(), [frame, frame])
    shuffled = frame[["label", "d", "b", "a", "c"]]
    torch.testing.assert_close(run.predict(shuffled), run.model(x).detach())


def test_the_best_model_is_stored_also_when_a_run_is_resumed(tmp_path: Path) -> None:
    file, settings = tmp_path / "a.sqlite", {"algorithm": FedAvg(eta=3.0), "eval_every": 1}
    run = tunefree.Run(dense(), CLIENTS, HELD_OUT[0], **USUAL | settings | {"rounds": 12}, out=file)
    best, weights, rows = -1.0, torch.zeros(0), 0
    for _ in range(2):  # two processes
        for row in run:
            rows += 1
            if row["accuracy"] > best:
                best, weights = row["accuracy"], weight_of(run.model).clone()
            if rows == 5:
                break
        assert torch.equal(weight_of(run.best), weights)
        assert torch.equal(weight_of(tunefree.load(file, dense(), best=True)), weights)
        run = tunefree.Run.resume(file, dense(), CLIENTS, HELD_OUT[0], progress=False)
    assert torch.equal(weight_of(run.best), weights)
    assert not torch.equal(weight_of(run.model), weights)
    assert scores_of(run.best, *HELD_OUT[0])[0] == pytest.approx(best)
    with pytest.raises(ConfigError, match="no model was evaluated yet"):
        _ = tunefree.Run(dense(), CLIENTS, **USUAL).best


def test_gradients_are_clipped_and_accumulated_as_in_torch() -> None:
    x, y = CLIENTS[0]
    model = dense()
    optimiser = torch.optim.SGD(model.parameters(), 0.5)
    for _ in range(3):
        optimiser.zero_grad()
        for part in range(3):
            at = slice(4 * part, 4 * part + 4)
            torch.autograd.backward(f.cross_entropy(model(x[at]), y[at]) / 3)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimiser.step()
    more = {"algorithm": FedAvg(eta=0.5), "local_steps": 3, "rounds": 1, "batch_size": 4}
    run = train(dense(), [(x, y)], accumulate=3, clip_gradients=0.1, **more)
    torch.testing.assert_close(run.model.weight, model.weight)
    assert run.history[-1]["samples"] == 36
    unclipped = train(dense(), [(x, y)], accumulate=3, **more).model
    assert not torch.allclose(unclipped.weight, model.weight)
    epochs = {"local_epochs": 2, "local_steps": None, "batch_size": 4, "rounds": 1}
    assert train(dense(), accumulate=2, **epochs).algo.sys.K == 4  # of 12, 9 and 15 samples


@pytest.mark.parametrize("loss", [nn.BCEWithLogitsLoss(), f.binary_cross_entropy])
def test_two_classes_as_zero_and_one_have_an_accuracy(loss: Any) -> None:
    clients = [(x, (y == 0).float()) for x, y in CLIENTS]
    layers = [dense(1), *([] if isinstance(loss, nn.Module) else [nn.Sigmoid()])]
    run = train(nn.Sequential(*layers), clients, test=clients[0], loss=loss)
    x, y = clients[0]
    middle = 0.0 if isinstance(loss, nn.Module) else 0.5
    right = (run.predict(x)[:, 0] > middle).float() == y
    assert run.history[-1]["accuracy"] == pytest.approx(float(right.float().mean()))
    assert 0 < run.history[-1]["accuracy"] < 1
    soft = [(x, 0.9 * y + 0.05) for x, y in clients]
    run = train(nn.Sequential(*layers), soft, test=soft[0], loss=loss)
    assert "accuracy" not in run.history[-1]


def test_a_model_with_other_layers_is_not_loaded_without_a_word(tmp_path: Path) -> None:
    file = tmp_path / "a.sqlite"
    train(nn.Sequential(dense(), nn.ReLU()), out=file)
    with pytest.warns(UserWarning, match=r"trained was .*ReLU.* and this one is .*Tanh"):
        tunefree.load(file, nn.Sequential(dense(), nn.Tanh()))
