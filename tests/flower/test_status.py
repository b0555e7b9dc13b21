"""The status of a running federation, on a Grid of nodes in this process."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("flwr")

from filelock import FileLock
from flwr.app import Message

from tests.flower.nodes import Nodes, build_model, config, load_test
from tunefree.cli import main
from tunefree.flower.federation import Federation
from tunefree.flower.pace import Pace
from tunefree.flower.status import Live, status


def federation(nodes: Nodes) -> Federation:
    return Federation(cast("Any", nodes), nodes.run_config, build_model, load_test(None))


def test_status_without_a_readable_live_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text, shown in (
        ("{", "unknown ('a.sqlite.live.json' cannot be read), round 0 of ?"),
        ('{"state": "running"}', "silent (its server has written nothing for 10 s), round 0 of ?"),
    ):
        (tmp_path / "a.sqlite.live.json").write_text(text)
        assert main(["flower", "status", str(tmp_path)]) == 1
        assert shown in capsys.readouterr().out


def test_polls_become_rarer_while_there_is_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("tunefree.flower.pace.time", SimpleNamespace(monotonic=lambda: now))
    pace, pauses = Pace(), []
    while now < 60:
        pauses.append(pace.pause())
        now += pauses[-1]
    assert pauses[0] == 0.05
    assert pauses == sorted(pauses)
    assert pauses[-1] == 2.0
    assert len(pauses) < 80
    pace.news()
    now += pace.pause()
    pace.news()
    assert pace.pause() <= 1.0


def test_status_shows_who_is_connected_and_the_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tunefree.flower.transport.FRESH", 0.0)
    nodes = Nodes(tmp_path, range(3), config(tmp_path, rounds=4, evaluate_on_clients=True))
    nodes.places[2000] = 1
    with Live(Path(nodes.run_config["out"])) as live:
        ours = federation(nodes)
        live.watch(ours)
        for row in ours.run():
            if row["t"] == 1:
                del nodes.places[1002]
            live.write()
        assert main(["flower", "status", str(tmp_path)]) == 0
        told = capsys.readouterr().out
        assert "running, round 4 of 4, accuracy" in told
        assert "about 0 s left" in told
        assert "client 0, partition 0, node 1000: connected, accuracy" in told
        assert ", 4 uploads, 0 refused or missing, length " in told
        assert "client 2, partition 2, node -: disconnected" in told
    assert main(["flower", "status", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "ended, round 4 of 4, accuracy" in told
    assert "s left" not in told
    assert "client 0, partition 0, node 1000: was connected, accuracy" in told
    assert "client 2, partition 2, node -: was disconnected" in told
    assert "node 2000 is refused: partition 1 is connected already" in told
    assert "round 3, client 2: it is not connected" in told
    assert main(["show", str(tmp_path)]) == 0
    assert "done after round 4 of 4" in capsys.readouterr().out


def test_status_of_a_run_that_is_being_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunefree.flower.transport.FRESH", 0.0)
    nodes = Nodes(tmp_path, range(3), config(tmp_path))
    out = Path(nodes.run_config["out"])
    for row in federation(nodes).run():
        if row["t"] == 1:
            break
    seen: list[dict[str, Any]] = []

    def during_hello(node: int, reply: Message) -> Message:
        live.write()
        seen.append(status(out))
        return reply

    nodes.change = during_hello
    with Live(out) as live:
        ours = federation(nodes)
        live.watch(ours)
        ours.run()
    assert (seen[0]["state"], seen[0]["run_state"]) == ("waiting for clients", "running")
    assert {one["state"] for one in seen[0]["clients"]} == {"not connected yet"}
    assert seen[0]["events"] == []


def test_status_shows_only_the_last_rounds_misses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunefree.flower.status.LAST", 2)
    nodes = Nodes(tmp_path, range(3), config(tmp_path, deadline=0.01))
    nodes.change = lambda node, reply: None if 10 < len(nodes.sent) < 14 else reply
    run = federation(nodes).run()
    assert sum(row["absent"] for row in run) > 0
    assert status(Path(nodes.run_config["out"]))["absent"] == []


@pytest.mark.parametrize(("age", "locked", "state"), [(4, False, "silent"), (4, True, "running")])
def test_status_of_a_run_whose_server_was_killed(
    age: float, locked: bool, state: str, tmp_path: Path
) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path))
    out = Path(nodes.run_config["out"])
    for row in federation(nodes).run():
        if row["t"] == 1:
            break
    there = {"client": 0, "name": "partition 0", "node": 1, "state": "connected"}
    page = {"state": "running", "at": time.time() - age, "clients": [there]}
    (tmp_path / "run.sqlite.live.json").write_text(json.dumps(page))
    with FileLock(f"{out}.lock") if locked else nullcontext():
        found = status(out)
    ended = "interrupted" if state == "silent" else "running"
    assert (found["state"], found["run_state"]) == (state, ended)
    assert found["ok"] == locked


def test_a_run_that_was_stopped_from_outside_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with suppress(SystemExit), Live(tmp_path / "a.sqlite"):  # as Flower's handler of SIGTERM does
        raise SystemExit(0)
    assert main(["flower", "status", str(tmp_path)]) == 1
    assert "stopped (by `flwr stop` or a signal), round 0" in capsys.readouterr().out
