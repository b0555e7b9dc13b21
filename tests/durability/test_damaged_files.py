"""Every file that a command reads, cut short or with other bits: one sentence, no traceback."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tunefree.cli import main
from tunefree.errors import TunefreeError

TIMES = 25  # damages of each file; five times as many found nothing more
LIVE = {
    "state": "running",
    "why": "",
    "at": 0.0,
    "pid": 1,
    "clients": [
        {"client": 0, "name": "partition 0", "node": 12, "state": "late", "late": 2.0},
        {"client": 1, "name": "partition 1", "node": 13, "state": "connected", "scores": {"a": 1}},
    ],
    "refused": {"7": "partition 0 is connected already"},
    "events": [[1.0, "partition 0 connected"]],
}
VALUES: tuple[Any, ...] = (3, "x", [], {}, None, [1], {"a": 1})


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Cut short, some bits changed, or a part overwritten."""
    kind, length = chance.randrange(3), len(content)
    if kind == 0:
        return content[: chance.randrange(length)]
    bytes_ = bytearray(content)
    if kind == 1:
        end = chance.choice([length, min(length, 100)])  # the header, which is short, as often
        for _ in range(chance.choice([1, 3, 30])):
            bytes_[chance.randrange(end)] ^= 1 << chance.randrange(8)
    else:
        at, some = chance.randrange(length), chance.randbytes(chance.randrange(1, 200))
        bytes_[at : at + len(some)] = some
    return bytes(bytes_)


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "a.sqlite"
    words = "run --rounds 3 --clients 4 --per-round 2 --local-steps 1 --eval-every 1 --out"
    assert main([*words.split(), str(path)]) == 0
    return path


def answers(words: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fails if the command ends with a traceback, or fails without one sentence."""
    capsys.readouterr()
    code = main([str(path) if word == "FILE" else word for word in words.split()])
    err = capsys.readouterr().err
    assert code in (0, 2)
    if code:
        assert err.startswith("tunefree: ")
        assert err.count("\n") == 1


COMMANDS = (
    "show FILE",
    "show FILE --clients",
    "report FILE -o page.html",
    "export FILE --csv table.csv",
    "export FILE --state-dict model.pt",
    "run --resume FILE --rounds 3",
)


@pytest.mark.parametrize("words", COMMANDS)
def test_a_damaged_run_file(
    words: str,
    run_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    path, chance = tmp_path / "d.sqlite", random.Random(words)
    for _ in range(TIMES):
        path.write_bytes(damaged(run_file.read_bytes(), chance))
        answers(words, path, capsys)
        for made in ("table.csv", "model.pt"):
            (tmp_path / made).unlink(missing_ok=True)


def test_a_run_file_with_wrong_shapes_of_tensors(
    run_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "d.sqlite"
    path.write_bytes(run_file.read_bytes())
    with closing(sqlite3.connect(path)) as db, db:
        wrong = json.dumps([["weight", [7, 7, "x"], 0]])
        db.execute("UPDATE run SET value = ? WHERE key = 'tensors'", (wrong,))
    assert main(["export", str(path), "--state-dict", "model.pt"]) == 2
    assert "cannot be read as a run file" in capsys.readouterr().err


def test_a_damaged_status(
    run_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("flwr")
    from tunefree.flower.metrics import of_server

    chance = random.Random(0)
    out = tmp_path / "a.sqlite"
    out.write_bytes(run_file.read_bytes())
    page = tmp_path / "a.sqlite.live.json"
    pages = [damaged(json.dumps(LIVE).encode(), chance) for _ in range(TIMES)]
    now: dict[str, Any] = {**LIVE, "at": time.time()}
    for key in LIVE:
        pages += [json.dumps({**now, key: value}).encode() for value in VALUES]
    for key in LIVE["clients"][0]:  # type: ignore[index]
        for value in VALUES:
            one = {**LIVE["clients"][0], key: value}  # type: ignore[index]
            pages.append(json.dumps({**now, "clients": [one]}).encode())
    for content in pages:
        page.write_bytes(content)
        capsys.readouterr()
        code = main(["flower", "status", str(tmp_path)])
        assert code in (0, 1, 2)
        assert (code == 2) == capsys.readouterr().err.startswith("tunefree: ")
        assert "ok" in of_server(tmp_path)


def test_damaged_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chance, path = random.Random(0), tmp_path / "settings.toml"
    whole = b'rounds = 1\nclients = 4\nper_round = 2\nalgorithm = "fedavg"\n[option]\neta = 0.1\n'
    for _ in range(TIMES):
        path.write_bytes(damaged(whole, chance))
        answers(f"compare --settings FILE polarfl:nonsense=1 --out {tmp_path}/x", path, capsys)


def keys(folder: Path) -> dict[str, Callable[[Path], object]]:
    """Files of keys, certificates, rosters and sessions, and what reads each."""
    pytest.importorskip("flwr")
    from tunefree.node.apps import hashes_in
    from tunefree.node.connection import named, read_certificates
    from tunefree.node.keys import certificates, load_key, load_public_key, node_key
    from tunefree.node.local.processes import LIST, Processes
    from tunefree.node.resident import Session
    from tunefree.secure.roster import new_identity, read_identity, read_roster

    node_key(folder / "key")
    certificates(folder)
    new = new_identity(folder / "identity")
    (folder / "roster").write_text(f"tunefree roster 1 a\n0 {new.public.hex()}\n")
    (folder / "node.json").write_text('{"superlink": "a:1", "node": 12345678901234567890}')
    (folder / "approved").write_text("0123456789abcdef" * 4 + "\n")
    (folder / "config.toml").write_text('[superlink.ours]\naddress = "a:1"\n')
    (folder / LIST).write_text('[{"4194305": "not running"}, [1]]')

    def listed(path: Path) -> None:
        processes = Processes(path.parent)
        processes.end()

    return {
        "key": load_key,
        "key.pub": load_public_key,
        "ca.crt": read_certificates,
        "identity": read_identity,
        "roster": read_roster,
        "node.json": lambda path: Session(path, "a:1"),
        "approved": lambda path: hashes_in([str(path)]),
        "config.toml": lambda path: named("ours"),
        LIST: listed,
    }


def test_damaged_keys_and_small_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(0)
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    for name, read in keys(tmp_path).items():
        path = tmp_path / name
        whole, refused = path.read_bytes(), []
        for _ in range(TIMES):
            path.write_bytes(damaged(whole, chance))
            try:
                read(path)
            except TunefreeError as error:
                refused.append(str(error))
        assert not any("\n" in sentence for sentence in refused), name
        assert refused or name in ("node.json", "approved", "processes.json"), name
