"""Folders as the LEAF benchmark writes them, taken as data."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from tunefree.cli import main
from tunefree.data import load
from tunefree.errors import ConfigError
from tunefree.record import Record

USERS = {"f0001": 6, "f0002": 9, "f0003": 7}


def write(file: Path, users: dict[str, int], shift: float = 0.0, x: Any = None) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    data = {
        user: {
            "x": x or [[i + shift, float(len(user)), n] for i in range(n)],
            "y": [i % 3 for i in range(n)],
        }
        for user, n in users.items()
    }
    about = {"users": list(users), "num_samples": list(users.values()), "user_data": data}
    file.write_text(json.dumps(about), "utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (first, *others) = USERS.items()
    write(tmp_path / "train" / "all_data_0_train.json", dict([first]))
    write(tmp_path / "train" / "all_data_1_train.json", dict(others))
    write(tmp_path / "test" / "all_data_0_test.json", {"f0001": 2, "f0003": 3}, shift=0.5)
    return tmp_path


def test_its_users_are_the_clients(folder: Path) -> None:
    data = load(f"leaf:{folder}")
    assert data.clients == tuple(USERS)
    assert data.groups is not None
    assert [int((data.groups == i).sum()) for i in range(3)] == list(USERS.values())
    assert data.classes == 3
    assert torch.equal(data.train.x[:2], torch.tensor([[0.0, 5, 6], [1, 5, 6]]))
    assert data.test.x[:, 0].tolist() == [0.5, 1.5, 0.5, 1.5, 2.5]


def test_without_test_files_a_share_of_each_user_is_held_out(folder: Path) -> None:
    (folder / "test" / "all_data_0_test.json").unlink()
    data = load(f"leaf:{folder}", test=0.4)
    assert (len(data.train), len(data.test)) == (13, 9)


def test_it_trains_by_name_and_a_changed_file_is_read_again(folder: Path) -> None:
    settings = ["--rounds", "2", "--per-round", "2", "--out", str(folder / "run.sqlite")]
    assert main(["run", "--data", f"leaf:{folder}", *settings]) == 0
    with closing(Record.open(folder / "run.sqlite")) as record:
        assert list(record.facts().names) == list(USERS)
    file = folder / "train" / "all_data_0_train.json"
    write(file, {"f0001": 4})
    os.utime(file, ns=(1, 1))
    assert len(load(f"leaf:{folder}").train) == 20


def test_what_is_wrong_is_said(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"no file train/\*.json"):
        load(f"leaf:{folder / 'train'}")
    with pytest.raises(ConfigError, match="target"):
        load(f"leaf:{folder}", target="y")
    write(folder / "train" / "more.json", {"f0004": 2}, x=["to be", "or not"])
    with pytest.raises(ConfigError, match=r"more.json.*write a function"):
        load(f"leaf:{folder}")
