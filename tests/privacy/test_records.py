"""Record level: what leaves a client is a noisy sum of bounded gradients, and all is accounted."""

from __future__ import annotations

import functools
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

import tunefree
from tunefree import methods
from tunefree.core import System, bind, stream
from tunefree.data.samples import Samples
from tunefree.errors import ConfigError, FleetError
from tunefree.fleet.job import Job
from tunefree.geometry import split, tensor_weights
from tunefree.methods.registry import REGISTRY, build
from tunefree.models.objective import Objective
from tunefree.privacy.accountant import Gaussian
from tunefree.privacy.calls import Calls, calls_of
from tunefree.privacy.promise import Privacy
from tunefree.privacy.records import PrivateOracle, RecordGuarantee, bounded, guarantee

pytest.importorskip("dp_accounting")
RECORDS = Privacy(epsilon=8, unit="record")
ONE = Calls((1,), 1)
WORDS = np.random.default_rng(1)


def drawn_words(n: int) -> Any:
    return WORDS.integers(2**64, size=n, dtype=np.uint64)


JOB = Job(0, 0, "round", 0, None)


def samples(n: int = 40) -> Samples:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(n, 4, generator=rng)
    return Samples(x, (x[:, 0] > 0).long())


def objective(*more: nn.Module) -> Objective:
    torch.manual_seed(0)
    return Objective(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), *more, nn.Linear(8, 2)))


def oracle(sigma: float = 0.0, batch: float = 10.0, **more: Any) -> PrivateOracle:
    promise = RecordGuarantee(8, 1e-5, sigma, 40, batch, 1, (), (ONE,))
    given = {"objective": objective(), "samples": samples(), "part": np.arange(40), **more}
    return PrivateOracle(rng=stream(0, "x"), promise=promise, **{"allowed": ONE, **given})


def normalised(F: Objective, theta: torch.Tensor, data: Samples, places: Any) -> torch.Tensor:
    """Σ over samples and w_l ∇F_l / ||∇F_l||, the slow way."""
    total, weights = torch.zeros_like(theta), tensor_weights(F.shapes)
    for place in places:
        x, y = data.batch(np.array([place]))
        g = F.grad(theta, x, y, 0)
        for part, u, w in zip(split(total, F.shapes), split(g, F.shapes), weights, strict=True):
            part += w * u / u.norm() if u.norm() > 0 else 0
    return total


def test_a_gradient_is_the_sum_of_bounded_gradients_of_single_records() -> None:
    F, given = oracle(), objective()
    xi = F.draw()
    assert xi.y is not None
    places = [int((samples().x == row).all(1).nonzero()) for row in xi.x]
    assert 0 < len(places) < 40
    for theta in (given.theta0, given.theta0 * 0.5):  # one xi at two points
        expected = normalised(given, theta, samples(), places) / 10
        torch.testing.assert_close(F.grad(theta, xi), expected, rtol=1e-4, atol=1e-6)
    whole = normalised(given, given.theta0, samples(), range(40)) / 40
    torch.testing.assert_close(F.full_grad(given.theta0), whole, rtol=1e-4, atol=1e-6)


def test_no_record_counts_more_than_one() -> None:
    wild = samples(4)
    x = wild.x * torch.tensor([1.0, 1e30, 1e-30, torch.nan]).unsqueeze(1)
    F = objective()
    parts = next(iter(F.sample_grads(F.theta0, x, wild.y, 0)))
    sides = zip(parts, tensor_weights(F.shapes), strict=True)
    both = [g * factor.unsqueeze(1) for g, factor in (bounded(g, w) for g, w in sides)]
    norms = torch.cat(both, 1).norm(dim=1)
    assert (norms <= 1 + 1e-5).all()
    assert norms[0] == pytest.approx(1)
    assert norms[3] == 0  # not finite


@pytest.mark.parametrize("words", [None, drawn_words], ids=["seeded", "integers"])
def test_the_noise_is_the_promised_one(words: Any) -> None:
    F = oracle(sigma=2.0, words=words)
    theta = F._objective.theta0
    clean = oracle().full_grad(theta)
    off = torch.stack([F.full_grad(theta) - clean for _ in range(60)]) * 40
    assert float(off.std()) == pytest.approx(2, rel=0.05)
    assert float(off.mean()) == pytest.approx(0, abs=0.2)
    empty = oracle(2.0, part=np.arange(0), words=words)
    assert float(empty.grad(theta, empty.draw()).norm()) > 0.5  # nobody came


@pytest.mark.parametrize("words", [None, drawn_words], ids=["seeded", "integers"])
def test_every_record_has_a_coin_of_its_own(words: Any) -> None:
    F = oracle(words=words)
    drawn = [len(xi.y) if xi.y is not None else 0 for xi in (F.draw() for _ in range(2000))]
    assert np.mean(drawn) == pytest.approx(10, rel=0.05)
    assert np.var(drawn) == pytest.approx(40 * 0.25 * 0.75, rel=0.15)  # a fixed size has none
    assert F.n == 1
    assert F.draw().number == 2000


def test_more_than_was_accounted_for_is_refused() -> None:
    F = oracle()
    xi, theta = F.draw(), objective().theta0
    F.grad(theta, xi)
    F.full_grad(theta)
    F.settle(JOB)
    F.grad(theta, xi)
    with pytest.raises(FleetError, match="more gradients in exchange 0 of the round at t = 0 than"):
        F.settle(JOB)
    with pytest.raises(ConfigError, match="loss of a batch is not private"):
        F.loss_and_grad(theta, xi)


EXPECTED = {  # in a round of K = 3 steps
    "fedavg": [Calls((1, 1, 1))],
    "polarfl": [Calls((1, 1, 1))],
    "padamfed_vr": [Calls((2, 2, 2))],
    "mime": [Calls((), 1), Calls((2, 2, 2))],
    "fedsps": [Calls((1, 1, 1), 0, 3)],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_calls_are_counted_before_anything_runs(name: str) -> None:
    algo = build(name, System(N=4, S=2, K=3, T=5))
    assert list(calls_of(algo, torch.ones(3), "round")) == EXPECTED[name]
    opening = list(calls_of(algo, torch.ones(3), "opening"))
    assert opening == ([Calls((1, 1, 1))] if name == "padamfed_vr" else [])


def test_the_promise_counts_every_release() -> None:
    sys = System(N=4, S=2, K=3, T=10)
    mime = guarantee(RECORDS, build("mime", sys), torch.ones(3), records=100, batch_size=20)
    assert mime.limit == 5  # of ten rounds, half of the clients in each
    sigma = mime.sigma
    assert mime.releases(5) == Counter({Gaussian(sigma): 5, Gaussian(sigma / 2**0.5, 0.2): 15})
    assert 7.9 < mime.spent(5) <= 8
    assert mime.spent(0) == 0 < mime.after(1, sys) < mime.after(10, sys)
    assert mime.of_runs(2) > mime.spent(5)
    vr = guarantee(RECORDS, build("padamfed_vr", sys), torch.ones(3), 100, 20)
    assert vr.spent(0) > 0  # the opening
    assert RecordGuarantee.stored(vr.facts()) == vr


def blobs(sizes: tuple[int, ...] = (60, 60, 90)) -> list[tuple[torch.Tensor, torch.Tensor]]:
    rng = torch.Generator().manual_seed(0)
    clients = [torch.randn(n, 4, generator=rng) for n in sizes]
    return [(x, (x[:, 0] > 0).long()) for x in clients]


def private(model: nn.Module | None = None, **more: Any) -> tunefree.Run:
    torch.manual_seed(0)
    usual = {"privacy": RECORDS, "rounds": 6, "per_round": 3, "local_steps": 2, "batch_size": 20}
    settings: Any = {**usual, "eval_every": 3, "fleet": "serial", "progress": False, **more}
    clients = settings.pop("clients", blobs())
    return tunefree.Run(model or nn.Linear(4, 2), clients, blobs()[0], **settings)


def test_a_run_says_what_it_promises() -> None:
    run = private().finish()
    assert run.history[0]["epsilon"] == 0
    assert 7.9 < run.history[-1]["epsilon"] <= 8
    facts = run.record.facts()
    assert facts.privacy["unit"] == "record"
    assert facts.privacy["records"] == 70
    assert facts.privacy["q"] == pytest.approx(20 / 70)
    assert "the server sees noisy updates; holds against everybody" in run.summary()
    assert "one record of one client added or removed" in run.summary()
    assert not any("train_loss" in row for row in run.history)
    assert facts.label_counts == []
    assert run.history[-1]["samples"] == 6 * 3 * 2 * 20  # public numbers only


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "mime", "fafed", "scafcom", "delta_sgd"])
def test_methods_of_all_kinds_can_be_private(name: str) -> None:
    assert private(algorithm=name, rounds=2).finish().history[-1]["epsilon"] <= 8


def test_all_methods_are_accounted_for() -> None:
    sys, theta0 = System(N=3, S=3, K=2, T=40), torch.ones(10)
    for name in REGISTRY:
        (calls, *more) = calls_of(build(name, sys, shapes=((2, 4), (2,))), theta0, "round")
        assert bool(calls.losses) == (name == "fedsps"), name
        assert calls.batches or more, name


@pytest.mark.parametrize("method", [{}, {"algorithm": methods.PAdaMFedVR()}])
def test_it_continues_bit_for_bit_on_every_fleet(method: dict[str, Any], tmp_path: Path) -> None:
    whole = private(**method).finish()
    path = tmp_path / "run.sqlite"
    for _ in islice(private(out=path, **method), 3):
        pass
    torch.manual_seed(0)
    given: Any = {"algorithm": method["algorithm"]} if method else {}
    again = tunefree.resume(path, nn.Linear(4, 2), blobs(), blobs()[0], progress=False, **given)
    assert again.theta_sha256 == whole.theta_sha256
    assert again.history[-1]["epsilon"] == whole.history[-1]["epsilon"]
    assert private(fleet="pool", workers=2, **method).finish().theta_sha256 == whole.theta_sha256
    assert private(seed=1, **method).finish().theta_sha256 != whole.theta_sha256
    torch.manual_seed(0)
    with pytest.raises(ConfigError, match=r"rounds = 9 would spend epsilon = \d+"):
        tunefree.resume(path, nn.Linear(4, 2), blobs(), blobs()[0], rounds=9, **given)


def test_kernels_do_not_bypass_the_oracle() -> None:
    hashes = set()
    for kernels in ("plain", "batch-minor"):
        torch.manual_seed(0)
        run = private(nn.Sequential(nn.Linear(4, 2)), kernels=kernels).finish()
        hashes.add(run.theta_sha256)
    assert len(hashes) == 1


class Two(nn.Module):
    """Two outputs, of which the loss takes both."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.dropout = nn.Linear(4, 2), nn.Linear(4, 1), nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first: torch.Tensor = self.a(self.dropout(x))
        second: torch.Tensor = self.b(x)
        return first, second


def both(answer: Any, y: torch.Tensor) -> torch.Tensor:
    first = nn.functional.cross_entropy(answer[0], y, reduction="sum")
    second: torch.Tensor = answer[1].squeeze(1).sub(y).square().sum()
    return first + second


def test_several_outputs_sums_as_losses_and_dropout() -> None:
    run = private(Two(), loss=both).finish()
    assert run.history[-1]["epsilon"] <= 8
    assert run.theta_sha256 == private(Two(), loss=both).finish().theta_sha256


def test_a_model_that_mixes_records_is_refused() -> None:
    norm = nn.BatchNorm1d(4, track_running_stats=False)
    with pytest.raises(ConfigError, match=r"layer '1' \(BatchNorm1d\) uses statistics of a batch"):
        private(nn.Sequential(nn.Linear(4, 4), norm, nn.Linear(4, 2)))


class Branching(nn.Module):
    """What it does depends on the values of the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.layer(x if bool(x.sum() > 0) else -x)
        return answer


def test_a_model_without_gradients_of_single_records_is_refused() -> None:
    says = r"cannot be differentiated for single records by torch.func.vmap \(.*protect clients"
    with pytest.raises(ConfigError, match=says):
        private(Branching())


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"privacy": Privacy(8, "record", participations=2)}, "participations = 2 is too small: a"),
        ({"weighting": "examples"}, "cannot be promised: weighting by examples"),
        ({"local_epochs": 1, "local_steps": None}, "cannot be promised: with local epochs"),
        ({"sampling": "examples"}, "cannot be promised: sampling by size"),
        ({"standardise": True}, "cannot be promised: standardising needs"),
        ({"grad_norm": True}, "cannot be promised: scores that are"),
        ({"schedule": "buffered"}, "cannot be promised: in the buffered"),
        ({"algorithm": "fedsps"}, "cannot be promised: clients of FedSPS use the loss"),
    ],
)
def test_what_would_leave_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        private(**settings)


def test_records_that_have_weights_or_an_order_are_refused() -> None:
    weighted = [(x, y, torch.rand(len(y)) + 0.1) for x, y in blobs()]
    partial = functools.partial(nn.functional.cross_entropy, weight=torch.ones(2))
    sampler = WeightedRandomSampler([1.0] * 60, 60)
    drawn = [DataLoader(TensorDataset(*pair), 20, sampler=sampler) for pair in blobs((60, 60))]
    for clients, more in ((weighted, {}), (blobs(), {"loss": partial}), (drawn, {"per_round": 2})):
        with pytest.raises(ConfigError, match=r"cannot be promised: (the gradient|a coin decides)"):
            private(clients=clients, **more)
    shuffled = [DataLoader(TensorDataset(*pair), 20, shuffle=True) for pair in blobs()]
    assert private(clients=shuffled).finish().theta_sha256 == private().finish().theta_sha256


def test_what_belongs_to_clients_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"clip = 0.5 does not belong to unit = record; omit it"):
        Privacy(8, "record", clip=0.5)
    with pytest.raises(ConfigError, match=r"records = 100.0 does not belong to unit = client"):
        Privacy(8, records=100)
    with pytest.raises(ConfigError, match="unit = 'record' belongs to privacy; give epsilon too"):
        Privacy.of(tunefree.settings.Settings(unit="record"))


def test_a_client_counts_as_much_as_it_has_records() -> None:
    """Sums are divided by the same public number everywhere, so no size shows."""
    few, many = (oracle(part=np.arange(n)) for n in (10, 40))
    theta = objective().theta0
    assert float(few.full_grad(theta).norm()) < 0.5 * float(many.full_grad(theta).norm())


def test_the_stateless_method_knows_the_noise() -> None:
    run = private()
    method: Any = run.algo
    sigma, batch = run.record.facts().privacy["sigma"], 20
    D = method.worth(run.objective.theta0)
    roots = [8**0.5, 2**0.5]
    dimension = sum(roots) ** 2 / 2
    assert pytest.approx(3 * 2 / (1 + (sigma / batch) ** 2 * dimension)) == D
    assert bind(methods.PolarFLStateless(), run.algo.sys).sigma == 0
