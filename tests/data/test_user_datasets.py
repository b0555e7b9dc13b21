"""Users' own data sets: augmented, larger than memory, with several inputs."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

import tunefree
from tunefree.core import stream
from tunefree.data.clients import federation_from
from tunefree.data.lazy import LazySamples
from tunefree.errors import ConfigError
from tunefree.fleet.arena import Arena
from tunefree.models.objective import Objective
from tunefree.models.oracle import DataOracle
from tunefree.run.run import Run

SETTINGS: dict[str, Any] = {"rounds": 6, "local_steps": 2, "batch_size": 4, "progress": False}


class Pictures(Dataset[Any]):
    """Small pictures, changed at every reading by random numbers of some library."""

    def __init__(self, n: int = 18, seed: int = 0, how: str = "torch") -> None:
        rng = torch.Generator().manual_seed(seed)
        self.x, self.y = torch.randn(n, 1, 4, 4, generator=rng), torch.arange(n) % 3
        self.how, self.own, self.read = how, np.random.default_rng(0), 0

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        self.read += 1
        draw: dict[str, Callable[[], float]] = {
            "torch": lambda: float(torch.rand(())),
            "numpy": np.random.rand,
            "python": random.random,
            "own": self.own.random,
            "not": lambda: 0.5,
        }
        return self.x[i] * (0.5 + draw[self.how]()), int(self.y[i])


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))


def fit(clients: Any, **more: Any) -> Run:
    return tunefree.train(model(), clients, **(SETTINGS | more))


def hospitals(how: str = "torch") -> list[Pictures]:
    return [Pictures(seed=seed, how=how) for seed in range(4)]


@pytest.mark.parametrize("how", ["torch", "numpy", "python"])
def test_augmentation_is_drawn_anew_and_again_from_the_same_seed(how: str) -> None:
    data = federation_from([Pictures(how=how)]).train
    places = np.array([3, 3, 5])
    x, y = data.batch(places, seed=1)
    assert data.random
    assert not torch.equal(x[0], x[1])  # two readings of one sample
    assert y.tolist() == [0, 0, 2]
    assert torch.equal(data.batch(places, seed=1)[0], x)
    assert not torch.equal(data.batch(places, seed=2)[0], x)


def test_every_draw_of_a_client_is_a_new_one_of_its_own_stream() -> None:
    data, objective = federation_from([Pictures(2)]).train, Objective(model())
    objective.check(data)

    def draws(client: int) -> list[torch.Tensor]:
        F = DataOracle(objective, data, np.array([1]), 1, stream(0, "client", client))
        return [F.draw().x for _ in range(3)]

    one, again, other = draws(0), draws(0), draws(1)
    assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
    assert len({float(x.sum()) for x in (*one, *other)}) == 6


def test_an_augmented_set_gives_the_same_bits_on_every_fleet() -> None:
    runs = [fit(hospitals(), test=Pictures(9)), fit(hospitals(), fleet="pool", workers=2)]
    assert runs[0].theta_sha256 == runs[1].theta_sha256
    assert runs[0].theta_sha256 != fit(hospitals(), seed=1).theta_sha256
    frozen = [federation_from([data]).train.batch(slice(0, 18)) for data in hospitals()]
    assert runs[0].theta_sha256 != fit(frozen).theta_sha256


def test_an_augmented_run_resumes_bit_for_bit(tmp_path: Path) -> None:
    out = tmp_path / "a.sqlite"
    whole = fit(hospitals())
    federation = federation_from(hospitals())
    assert isinstance(federation.train, LazySamples)
    for row in tunefree.Run(model(), hospitals(), **SETTINGS, out=out):
        if row["round"] == 3:
            break
    resumed = tunefree.resume(out, model(), hospitals(), progress=False)
    assert len(resumed.history) == 7
    assert resumed.theta_sha256 == whole.theta_sha256


def test_reading_leaves_random_generators_unchanged() -> None:
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[index]  # noqa: NPY002
    data = federation_from([Pictures(how="python")]).train
    data.batch(slice(0, 5))
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]  # type: ignore[index]  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[2])


def test_a_generator_of_its_own_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="client 1 gives different values.*seed its own generator in"
    ):
        federation_from([Pictures(), Pictures(how="own")])


def test_samples_that_do_not_change_are_read_once() -> None:
    data = Pictures(how="not")
    train = federation_from([data]).train
    read = data.read
    train.batch(np.arange(18))
    assert data.read == read
    assert not train.lazy


class Listed(Pictures):
    """Knows its labels without reading a sample."""

    def __init__(self, n: int = 500) -> None:
        super().__init__(n)
        self.targets = self.y.tolist()


def test_samples_are_read_when_they_are_drawn() -> None:
    data = Listed()
    federation = federation_from((data, tunefree.partition.iid(data.targets, clients=5)))
    read = data.read
    assert read < 200  # tried, and labels were listed
    federation.train.batch(federation.parts[3][:7])
    assert data.read == read + 7
    whole: Subset[Any] = Subset(ConcatDataset([Listed(40), Listed(50)]), range(10, 80))
    labels = federation_from([whole]).train.y
    assert labels.tolist() == [*(i % 3 for i in range(10, 40)), *(i % 3 for i in range(40))]


def test_labels_that_are_listed_wrongly_are_read_instead() -> None:
    data = Listed(40)
    data.targets = [0] * 40
    assert federation_from([data]).train.y.tolist() == data.y.tolist()


def test_a_set_larger_than_memory_trains_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    there = fit(hospitals("not"))
    monkeypatch.setattr("tunefree.data.clients.IN_MEMORY", 2 * 18 * 64)  # room for two of four
    federation = federation_from(hospitals("not"))
    assert isinstance(federation.train, LazySamples)
    assert [type(source).__name__ for source in federation.train.x] == ["Samples"] * 2 + [
        "Items"
    ] * 2
    assert not federation.train.random
    assert fit(hospitals("not")).theta_sha256 == there.theta_sha256


def test_clients_of_every_kind_together() -> None:
    data = Pictures(how="not")
    kinds = [Pictures(), (data.x, data.y), TensorDataset(data.x, data.y), data]
    federation = federation_from(kinds)
    x, y = federation.train.batch(np.array([0, 18, 36, 54, 20]))
    assert torch.equal(x[1:], torch.stack([data.x[0], data.x[0], data.x[0], data.x[2]]))
    assert y.tolist() == [0, 0, 0, 0, 2]
    assert "train_loss" in fit(kinds).history[-1]


def test_a_sample_that_is_no_number_is_found_when_it_is_read() -> None:
    data = Pictures(40)
    data.x[37] = float("nan")
    train = federation_from([data]).train
    with pytest.raises(ConfigError, match="client 0, sample 37 has a non-finite input"):
        train.batch(np.array([1, 37]))


class Mapped(Dataset[Any]):
    """Rows of a file that is never read as a whole."""

    def __init__(self, path: Path) -> None:
        self.x, self.targets = np.load(path, mmap_mode="r"), np.arange(24) % 3

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.tensor(self.x[i]) + torch.randn(16), int(self.targets[i])


def test_a_mapped_file_is_mapped_again_and_not_sent(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(384, dtype=np.float32).reshape(24, 16))
    data = Mapped(tmp_path / "x.npy")
    arena = Arena.create()
    parcel = arena.pack(data)
    again = arena.unpack(parcel, copy=True)
    assert parcel.size < 384 * 4
    assert type(again.x) is np.memmap
    assert np.array_equal(again.x, data.x)


def test_arrays_of_unusual_kinds_reach_a_worker() -> None:
    given: list[Any] = [
        np.arange(3).astype(">f4"),
        np.arange(4)[::-1],
        np.arange(3.0),
        torch.eye(2).to_sparse(),
    ]
    given[2].flags.writeable = False
    arena = Arena.create()
    found = arena.unpack(arena.pack(given), copy=True)
    for one, other in zip(given[:3], found[:3], strict=True):
        assert np.array_equal(one, other)
    assert torch.equal(found[3].to_dense(), torch.eye(2))


def test_what_cannot_be_sent_to_a_worker_is_refused() -> None:
    with Path(__file__).open("rb") as file:
        data = hospitals()
        data[0].file = file  # type: ignore[attr-defined]
        with pytest.raises(ConfigError, match="'pool' cannot send .*open files in __getitem__"):
            fit(data, fleet="pool", workers=1)


class Words(Dataset[Any]):
    """Items of a tokenizer in three forms."""

    def __init__(self, form: str) -> None:
        self.form = form

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> Any:
        ids, mask, y = torch.arange(5) + i, torch.arange(5) <= i, i % 2
        return {
            "by position": ((ids, mask), y),
            "by name": ({"input_ids": ids, "attention_mask": mask}, y),
            "one dict": {"input_ids": ids, "attention_mask": mask, "idx": i, "labels": y},
            "flat": (ids, mask, y),
        }[self.form]


class Columns:
    """The interface of a Hugging Face data set."""

    def __init__(self) -> None:
        rows = [Words("one dict")[i] for i in range(12)]
        self.columns = {name: [row[name] for row in rows] for name in rows[0]}
        self.column_names = [*self.columns, "text"]

    def __len__(self) -> int:
        return 12

    def __getitem__(self, key: str) -> Any:
        return self.columns[key]


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(20, 2)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        words: torch.Tensor = self.embed(input_ids) * attention_mask.unsqueeze(-1)
        return words.sum(dim=1)


def test_several_inputs_from_items_and_from_columns() -> None:
    kinds = [Words(form) for form in ("by position", "by name", "one dict")]
    shas = {
        tunefree.train(Bag(), [kind, kind], kind, **SETTINGS).theta_sha256
        for kind in (*kinds, Columns())
    }
    assert len(shas) == 1


BAD: list[tuple[list[Any], str]] = [
    (
        [Words("flat")],
        r"client 0, sample 0 has three parts, and the third is not a weight.*\(\(a, b\), y\) for a",
    ),
    (
        [Words("by name"), Words("by position")],
        "client 1 has input 0, input 1 but client 0 has input 'input_ids', input 'attention_mask'",
    ),
    ([((torch.ones(3, 2), torch.ones(2, 2)), torch.ones(3))], "has 2 inputs but 3 targets"),
    (
        [((torch.ones(3, 2), torch.full((3,), torch.nan)), torch.ones(3))],
        "client 0, sample 0 has a non-finite input 1",
    ),
]


@pytest.mark.parametrize(("clients", "sentence"), BAD)
def test_mistakes_with_several_inputs_are_named(clients: list[Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as error:
        federation_from(clients)
    assert "\n" not in str(error.value)
