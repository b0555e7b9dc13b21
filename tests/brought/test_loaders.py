"""A DataLoader is a client's data: what it yields is what trains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as f
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import tunefree
from tunefree.data.clients import federation_from
from tunefree.data.loaders import drawn_by
from tunefree.errors import ConfigError
from tunefree.methods import FedAvg

RNG = torch.Generator().manual_seed(0)
X = [torch.randn(n, 3, generator=RNG) for n in (20, 25, 31)]
PAIRS = [(x, x.argmax(dim=1)) for x in X]
SETS = [TensorDataset(*pair) for pair in PAIRS]
SETTINGS: dict[str, Any] = {"rounds": 3, "progress": False}


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 3)


def loaders(batch_size: int = 8, **more: Any) -> list[DataLoader[Any]]:
    return [DataLoader(data, batch_size, **more) for data in SETS]


def sha(clients: Any, test: Any = None, **more: Any) -> str:
    return tunefree.train(model(), clients, test, **SETTINGS | more).theta_sha256


def test_a_shuffling_loader_is_its_data_set_with_its_batch_size() -> None:
    shuffling = loaders(shuffle=True, num_workers=2)
    assert sha(shuffling) == sha(PAIRS, batch_size=8) != sha(PAIRS)
    assert not federation_from(shuffling).train.lazy
    chosen = torch.arange(0, 20, 2).tolist()
    subset = [DataLoader(SETS[0], 8, sampler=SubsetRandomSampler(chosen))]
    assert sha(subset) == sha([(X[0][chosen], PAIRS[0][1][chosen])], batch_size=8)


def trained_by_hand(batches: list[Any], eta: float) -> torch.Tensor:
    module = model()
    steps = torch.optim.SGD(module.parameters(), eta)
    for x, y in batches:
        steps.zero_grad()
        f.cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call,unused-ignore]
        steps.step()
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


def augmented(items: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """A collate_fn whose samples depend on the whole batch."""
    x, y = torch.stack([x for x, _ in items]), torch.stack([y for _, y in items])
    return x - x.mean(dim=0), y


@pytest.mark.parametrize(
    "more",
    [{}, {"drop_last": True}, {"collate_fn": augmented}],
    ids=["in order", "drops last", "collate"],
)
def test_what_it_yields_is_what_trains(more: dict[str, Any]) -> None:
    loader = DataLoader(SETS[2], 8, **more)
    steps = len(loader)
    run = tunefree.train(
        model(), [loader], algorithm=FedAvg(eta=0.1), local_steps=steps, rounds=1, progress=False
    )
    torch.testing.assert_close(run.theta, trained_by_hand(list(loader), 0.1))
    assert run.history[-1]["samples"] == sum(len(y) for _, y in loader)


def test_a_weighted_sampler_draws_from_the_seed() -> None:
    sampler = WeightedRandomSampler([1.0] * 10 + [0.0] * 10, 20)
    loader = DataLoader(SETS[0], 4, sampler=sampler)
    federation = federation_from([loader])
    drawn = federation.train.order(federation.parts[0], np.random.default_rng(0))
    assert drawn.max() < 10
    assert len(drawn) == 20
    assert drawn_by(sampler, 3).tolist() == drawn_by(sampler, 3).tolist()
    assert sha([loader]) == sha([loader]) != sha([loader], seed=1)


class Texts(Dataset[Any]):
    """Word ids of different lengths, a label for each word."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        words = torch.arange(i % 5 + 2) % 9
        return words, (words + i) % 4


def batch_of(items: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    pad = nn.utils.rnn.pad_sequence
    words, tags = zip(*items, strict=True)
    return pad(list(words), True), pad(list(tags), True, -100)


def tag_loss(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return f.cross_entropy(out.movedim(-1, 1), y)


def tagger() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(9, 5), nn.Linear(5, 4))


@pytest.mark.parametrize("fleet", [{"fleet": "serial"}, {"fleet": "pool", "workers": 2}])
def test_a_collate_function_pads(fleet: dict[str, Any]) -> None:
    clients = [DataLoader(Texts(), 6, shuffle=True, collate_fn=batch_of) for _ in range(2)]
    settings: dict[str, Any] = {"rounds": 2, "loss": tag_loss, "progress": False}
    test = DataLoader(Texts(), 24, collate_fn=batch_of)
    run = tunefree.train(tagger(), clients, test, **settings, **fleet)
    alone = tunefree.train(tagger(), clients, **settings, fleet="serial")
    assert run.theta_sha256 == alone.theta_sha256
    [(x, y)] = test
    expected = tag_loss(run.model(x), y)
    assert run.history[-1]["loss"] == pytest.approx(float(expected.detach()), rel=1e-5)


def test_a_run_of_loaders_resumes(tmp_path: Any) -> None:
    out, clients = tmp_path / "a.sqlite", loaders(drop_last=True, shuffle=True)
    whole = sha(clients, rounds=5)
    tunefree.train(model(), clients, out=out, **SETTINGS)
    resumed = tunefree.resume(out, model(), clients, rounds=5, progress=False)
    assert resumed.theta_sha256 == whole
    with pytest.raises(ConfigError, match="batch_size = 8 is not that of the DataLoaders"):
        tunefree.resume(out, model(), loaders(9, drop_last=True, shuffle=True), rounds=9)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(SETS[0])


OWN = RandomSampler(SETS[0], generator=torch.Generator())
BATCHES = BatchSampler(SequentialSampler(SETS[0]), 4, False)


class Halves(BatchSampler):
    """Batches of its own making."""


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    ([DataLoader(Stream(), 4)], {}, r"IterableDataset.*in any order; .*list\(data\)"),
    (loaders(), {}, "local_steps = 2 would train on the first batches of client 0 only.*has 3 and"),
    (loaders(shuffle=True), {"batch_size": 4}, "batch_size = 4 is not that of the DataLoaders.*8"),
    ([loaders()[0], loaders(5)[1]], {}, "batches of 8 and client 1 with batches of 5; give all"),
    ([DataLoader(SETS[0], sampler=OWN)], {}, "random numbers of its own.*without generator="),
    ([DataLoader(SETS[0], batch_size=None)], {}, "DataLoader with batch_size=None; give it"),
    (
        [DataLoader(SETS[0], batch_sampler=Halves(SequentialSampler(SETS[0]), 4, False))],
        {},
        "a batch_sampler of its own; give it batch_size",
    ),
    ((loaders()[0], tunefree.partition.iid(PAIRS[0][1], 2)), {}, r"give \(loader.dataset, part"),
    (
        [DataLoader(SETS[0], 4, shuffle=True, collate_fn=lambda items: torch.zeros(4))],
        {},
        "a batch of its collate_fn is of type Tensor",
    ),
    (
        [DataLoader(SETS[0], 4, shuffle=True, collate_fn=lambda items: augmented(items * 2))],
        {},
        "a collate_fn that does not return inputs and one target for each sample",
    ),
    (
        [DataLoader(SETS[0], 4, sampler=WeightedRandomSampler([1.0] * 20, 30))],
        {"local_steps": None, "local_epochs": 1},
        "local_epochs = 1 cannot be used for client 0, .* draws 30 of 20 samples in a pass",
    ),
]


@pytest.mark.parametrize(("clients", "more", "sentence"), REFUSED)
def test_conflicts_are_refused(clients: Any, more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        sha(clients, **{"local_steps": 2} | more)


def test_a_loader_is_a_test_set() -> None:
    loader = DataLoader(SETS[0], 7)
    runs = [tunefree.train(model(), PAIRS, test, **SETTINGS) for test in (PAIRS[0], loader)]
    assert runs[0].history[-1]["accuracy"] == runs[1].history[-1]["accuracy"]
    assert runs[0].history[-1]["loss"] == runs[1].history[-1]["loss"]
