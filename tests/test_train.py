"""`tunefree.train`: from a model and clients to a trained model."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tunefree
from tunefree.core import Exchange
from tunefree.errors import ConfigError, FleetError, WireError
from tunefree.methods import ComParFreFL, FedAvg, PAdaMFed, Scaffold
from tunefree.record import Record
from tunefree.run.run import Run

Clients = list[tuple[torch.Tensor, torch.Tensor]]


def blobs(clients: int = 6, n: int = 30, seed: int = 0) -> Clients:
    """Three Gaussian classes, split so that every client misses one."""
    rng = torch.Generator().manual_seed(seed)
    centres = 3 * torch.eye(3, 4)
    result = []
    for client in range(clients):
        y = (torch.randint(2, (n,), generator=rng) + client) % 3
        result.append((centres[y] + torch.randn(n, 4, generator=rng), y))
    return result


def fit(**settings: object) -> Run:
    torch.manual_seed(0)
    defaults: dict[str, object] = {"rounds": 60, "per_round": 3, "local_steps": 4, "batch_size": 8}
    defaults["algorithm"] = "padamfed"
    data: Clients = settings.pop("clients", blobs())  # type: ignore[assignment]
    return tunefree.train(
        nn.Linear(4, 3),
        data,
        blobs(1, 300, seed=9)[0],
        progress=False,
        **(defaults | settings),  # type: ignore[arg-type]
    )


def test_it_learns_without_a_learning_rate() -> None:
    run = fit()
    assert run.history[0]["accuracy"] < 0.7
    assert run.history[-1]["accuracy"] > 0.9
    assert isinstance(run.model, nn.Linear)
    x, y = blobs(1, 300, seed=9)[0]
    accuracy = (run.model(x).argmax(1) == y).float().mean().item()
    assert accuracy == pytest.approx(run.history[-1]["accuracy"])


def test_a_compressor_works_on_each_tensor_however_the_method_is_given() -> None:
    named = fit(algorithm="comparfrefl", rounds=20)
    given = fit(algorithm=ComParFreFL, rounds=20)
    assert named.history[-1]["bits_up"] == given.history[-1]["bits_up"]
    assert named.theta_sha256 == given.theta_sha256
    assert named.record.facts().compressor == "top:0.05"


@pytest.mark.parametrize("algorithm", ["padamfed", "padamfed_vr", "parfrefl", "scaffold"])
def test_same_seed_same_bits(algorithm: str) -> None:
    one, two = fit(algorithm=algorithm, rounds=20), fit(algorithm=algorithm, rounds=20)
    assert one.theta_sha256 == two.theta_sha256
    assert one.theta_sha256 != fit(algorithm=algorithm, rounds=20, seed=1).theta_sha256


def test_threads_and_the_users_own_noise_change_nothing() -> None:
    before = fit(rounds=20).theta_sha256
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if threads > 1 else 2)
    try:
        state = torch.get_rng_state()
        torch.manual_seed(123)
        assert fit(rounds=20).theta_sha256 == before
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(state)


def test_evaluating_more_often_changes_nothing_but_the_history() -> None:
    often, seldom = fit(rounds=20, eval_every=1, grad_norm=True), fit(rounds=20, eval_every=20)
    assert often.theta_sha256 == seldom.theta_sha256
    assert sum("grad_norm" in row for row in often.history) == 21
    assert [row["t"] for row in seldom.history if "loss" in row] == [-1, 19]


def test_history_counts_samples_and_bits_from_the_opening_on() -> None:
    run = fit(rounds=20)
    d, N, S = 15, 6, 3
    first, last = run.history[0], run.history[-1]
    assert (first["t"], first["clients"], first["bits_up"]) == (-1, N, N * d * 32)
    assert last["bits_down"] == N * d * 32 + 20 * S * 2 * d * 32
    assert last["bits_up"] == last["bits_down"]
    assert last["samples"] == (N + 20 * S) * 30  # K = 4 batches of 8 are a client's whole set


def test_opening_zero_skips_the_first_pass() -> None:
    run = fit(schedule=tunefree.Schedule(opening="zero"), rounds=40)
    assert run.history[0]["bits_up"] == 0
    assert run.history[-1]["accuracy"] > 0.9


def test_training_loss_and_gradient_norm_are_those_of_f() -> None:
    run = fit(rounds=5, local_steps=1, grad_norm=True)
    model = run.model
    losses = [nn.functional.cross_entropy(model(x), y) for x, y in blobs()]
    f = torch.stack(losses).mean()
    gradient = torch.autograd.grad(f, list(model.parameters()))
    norm = torch.cat([g.reshape(-1) for g in gradient]).norm()
    assert run.history[-1]["train_loss"] == pytest.approx(f.item(), rel=1e-5)
    assert run.history[-1]["grad_norm"] == pytest.approx(norm.item(), rel=1e-4)


def test_unequal_clients_some_smaller_than_a_batch() -> None:
    clients = [(x[:n], y[:n]) for (x, y), n in zip(blobs(), (1, 2, 5, 30, 30, 30), strict=True)]
    assert fit(clients=clients).history[-1]["accuracy"] > 0.8


def test_regression_with_float_targets() -> None:
    rng = torch.Generator().manual_seed(0)
    x = [torch.randn(20, 3, generator=rng) for _ in range(4)]
    clients = [(xi, xi @ torch.tensor([[1.0], [2.0], [-1.0]])) for xi in x]
    run = tunefree.train(nn.Linear(3, 1), clients, clients[0], rounds=200, progress=False)
    assert "accuracy" not in run.history[-1]
    assert run.history[-1]["loss"] < 0.01 * run.history[0]["loss"]


def steps_by_hand(sys: tunefree.System) -> PAdaMFed:
    return PAdaMFed(eta=1e-3, gamma=0.1, beta=0.7 if sys.K == 4 else 0.0)


def test_an_algorithm_as_a_function_of_the_constants() -> None:
    run = fit(algorithm=steps_by_hand, rounds=10)
    assert run.algo.beta == 0.7  # type: ignore[attr-defined]


def test_out_stores_the_run_with_every_state(tmp_path: Path) -> None:
    run = fit(rounds=20, out=tmp_path / "run.sqlite")
    record = Record.open(tmp_path / "run.sqlite")
    assert record.facts().state == "done"
    assert record.history() == run.history
    assert np.array_equal(record.vectors()["theta"], run.theta.numpy())
    c_i = [record.vectors(client)["c_i"] for client in range(6)]
    np.testing.assert_allclose(np.mean(c_i, axis=0), record.vectors()["c"], atol=1e-6)


def test_divergence_names_client_field_and_step_and_keeps_earlier_steps(tmp_path: Path) -> None:
    with pytest.raises(WireError, match=r"client \d at t = \d+: `delta` is not finite"):
        fit(algorithm=FedAvg(eta=3e38), out=tmp_path / "run.sqlite")
    record = Record.open(tmp_path / "run.sqlite")
    assert record.facts().state == "diverged"
    assert len(record.history()) >= 1
    assert np.isfinite(record.vectors()["theta"]).all()


class Fragile(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and bool((x > 50).any()):
            raise RuntimeError("sensor out of range")
        return super().forward(x)


class Undeclared(PAdaMFed):
    """Writes Exchange(down, work, up), without its messages."""

    def round(self) -> tuple[Exchange, ...]:
        return (Exchange(self.broadcast, self.local, self.aggregate),)  # type: ignore[call-arg, arg-type]


def test_messages_must_be_declared(tmp_path: Path) -> None:
    sentence = r"does not declare its messages \(.*missing 2 required.*\); write each exchange as"
    with pytest.raises(ConfigError, match=sentence):
        fit(algorithm=Undeclared, out=tmp_path / "a.sqlite")
    assert not (tmp_path / "a.sqlite").exists()


def test_a_failing_client_is_named() -> None:
    clients = blobs()
    clients[4][0][7] = 99.0
    words = "client 4 failed in exchange 0 of the opening at t = -1: sensor out of range"
    with pytest.raises(FleetError, match=words):
        tunefree.train(Fragile(4, 3), clients, algorithm="padamfed", batch_size=30, progress=False)


def bad(client: int, sample: int, x: float | None = None, y: int | None = None) -> Clients:
    clients = blobs()
    if x is not None:
        clients[client][0][sample, 0] = x
    if y is not None:
        clients[client][1][sample] = y
    return clients


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"clients": []}, "give at least one"),
        ({"clients": [*blobs(2), (torch.empty(0, 4), torch.empty(0).long())]}, "client 2 has no"),
        ({"clients": bad(3, 5, x=float("nan"))}, "client 3, sample 5 has a non-finite input"),
        ({"clients": bad(1, 2, x=float("inf"))}, "client 1, sample 2 has a non-finite input"),
        ({"clients": bad(2, 0, y=3)}, "client 2, sample 0 has label 3, but the 3 classes"),
        ({"clients": bad(2, 0, y=-1)}, "client 2, sample 0 has label -1"),
        ({"per_round": 7}, "per_round = 7 exceeds clients = 6; lower"),
        ({"local_steps": 0}, "local_steps = 0 is too small"),
        ({"rounds": 0}, "rounds = 0 is too small"),
        ({"batch_size": 0}, "batch_size = 0 is too small"),
        ({"algorithm": "padamfedd"}, "did you mean 'padamfed'?"),
        ({"eta": 0.1}, "train has no argument 'eta', and PAdaMFed takes no step size"),
        ({"lr": 0.1}, "train has no argument 'lr', and PAdaMFed takes no step size"),
        ({"algorithm": FedAvg(eta=-1.0)}, "eta = -1.0 is out of range"),
        ({"algorithm": FedAvg(eta="fast")}, "eta = 'fast' is not a number"),  # type: ignore[arg-type]
        ({"algorithm": "fedavg", "beta": 0.5}, "train has no argument 'beta'"),
        ({"algorithm": Scaffold(option="III")}, "option = 'III' is not known"),  # type: ignore[arg-type]
        ({"device": "warp"}, "device = 'warp' cannot be used here"),
        ({"loss": nn.CrossEntropyLoss(reduction="none")}, "it must be one number, the batch mean"),
        ({"loss": lambda out, y: (out - 1).abs().sum(1)}, "the batch mean: return loss.mean()"),
    ],
)
def test_bad_input_gets_a_clear_error(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        fit(**settings)
    assert sentence in str(error.value)
    assert not re.search(r"(system|algorithm|run|data)[.]\w|--", str(error.value))


def test_pixels_are_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match=r"; give floats, x\.float\(\) / 255"):
        tunefree.train(nn.Linear(4, 3), [(x.byte(), y) for x, y in blobs()], progress=False)


def test_a_loss_that_is_not_finite_at_the_start_is_not_called_divergence() -> None:
    with pytest.raises(WireError, match="is not finite before the first round: nothing was tr"):
        fit(loss=lambda out, y: (out - out).log().sum())


def test_a_test_set_with_a_label_out_of_range_is_refused() -> None:
    x, y = blobs(1)[0]
    with pytest.raises(ConfigError, match="test sample 0 has label 8"):
        tunefree.train(nn.Linear(4, 3), blobs(), (x, y + 8), progress=False)
