"""Private federations: nothing is released that was not paid for, nothing twice, nothing more."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("dp_accounting")

import torch
from flwr.app import ConfigRecord, Message, RecordDict

from tests.flower.nodes import Nodes, build_model, config
from tests.flower.test_federation import absences, federated, quick, trained
from tunefree.cli import main
from tunefree.cli.flower import status_lines
from tunefree.core import OpeningDown
from tunefree.errors import ConfigError, FleetError
from tunefree.flower.client_state import take_part
from tunefree.flower.envelope import Answer, data_in, pack, unpack
from tunefree.flower.run_file import check_settings
from tunefree.flower.status import status
from tunefree.privacy.clipping import FIRST
from tunefree.privacy.ledger import Ledger
from tunefree.record import GAUGE, Record
from tunefree.report.content import content
from tunefree.report.files import find
from tunefree.wire import encode

__all__ = ["quick"]  # a fixture
FEDAVG: dict[str, Any] = {"algorithm": "fedavg", "option.eta": 0.1, "epsilon": 200.0}


def private(folder: Path, places: int = 6, **more: Any) -> Nodes:
    """Six clients, three per round, eight rounds: each may take part four times."""
    usual: dict[str, Any] = {"algorithm": "polarfl_stateless", "epsilon": 8.0, "per_round": 3}
    return Nodes(folder, range(places), config(folder, **{**usual, "clients": 6, **more}))


def ledger_of(nodes: Nodes) -> Ledger:
    record = Record.open(Path(nodes.run_config["out"]))
    promise = record.facts().privacy
    return Ledger(record.connection, promise["epsilon"], promise["delta"])


def test_a_run_spends_its_budget_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = private(tmp_path)
    run, rows = trained(nodes)
    assert rows[0]["epsilon"] == 0
    spent = [row["epsilon"] for row in rows]
    assert spent == sorted(spent)
    assert spent[-1] == pytest.approx(8.0)
    uploads = run.record.uploads()
    assert uploads == dict.fromkeys(range(6), 4)
    path = Path(nodes.run_config["out"])
    found = status(path)
    assert found["privacy"]["left"] == pytest.approx(0.0, abs=1e-6)
    assert found["privacy"]["participations_left"] == dict.fromkeys(range(6), 0)
    assert "  privacy: epsilon 8 of 8 spent" in "\n".join(status_lines(found))
    said = {part: words for _, part, words in content(find([path]).runs)["privacy"]}
    assert said["epsilon spent"] == "8"
    assert said["trust"].startswith("the server, which sees uploads and adds the noise")
    assert "the seed" not in said["not covered"]
    assert main(["show", str(path)]) == 0
    assert "privacy, who takes part: a client 4 times at most" in capsys.readouterr().out


def test_a_run_that_is_mostly_noise_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    federated(private(tmp_path / "a"))
    assert "cannot hide" not in caplog.text
    federated(private(tmp_path / "b", epsilon=0.5))
    assert "6 clients cannot hide a whole client each at epsilon = 0.5" in caplog.text


def test_nothing_else_leaves_a_client(tmp_path: Path) -> None:
    """Neither how many samples it has, nor a vector longer than the bound."""
    nodes = private(tmp_path, **FEDAVG)
    run, rows = trained(nodes)
    answers = [m for m in nodes.received if m.metadata.message_type == "train"]
    assert len(answers) == 24
    for message in answers:
        answer = unpack(message.content, Answer, "a client")
        assert (answer.n, answer.drawn) == (1, 0)
    for message in (m for m in nodes.received if m.metadata.message_type == "query"):
        assert set(message.content["tunefree"]) == {"place"}
    assert run.record.facts().sizes == []
    assert rows[-1]["samples"] == 0
    assert not {name for row in rows for name in row if name.startswith("train")}
    assert not any(len(v) for v in run.record.vectors(GAUGE).values())  # it has seen nothing


def test_a_client_cuts_what_it_sends_where_it_is_told_to(tmp_path: Path) -> None:
    """And the server counts that as cut: the threshold rises until half are within it."""
    nodes = private(tmp_path, **FEDAVG)
    lengths: list[tuple[float, float]] = []
    theta = torch.zeros(21)

    def measured(node: int, reply: Message) -> Message:
        if reply.metadata.message_type == "train":
            sent: Any = nodes.sent[-1].content["tunefree"]
            up = np.frombuffer(data_in(reply.content, "a client")[-4 * 21 :], np.float32)
            lengths.append((float(np.linalg.norm(up)), float(sent["clip"])))
        return reply

    nodes.change = measured
    run, rows = trained(nodes)
    assert theta.shape == run.theta.shape
    assert all(length <= clip * (1 + 1e-6) for length, clip in lengths)
    assert {clip for _, clip in lengths} == {FIRST, *(row["clip"] for row in rows[1:-1])}
    assert any(abs(length / clip - 1) < 1e-6 for length, clip in lengths)


def test_a_cheating_client_cannot_send_more_than_its_bound(tmp_path: Path) -> None:
    """A vector a million times as long counts as one of the bound's length."""
    found = []
    for times in (1.0, 1e6):
        nodes = private(tmp_path / f"{times}", **FEDAVG, rounds=1, per_round=6, clip=1e-3)

        def larger(node: int, reply: Message, times: float = times) -> Message:
            if node == 1000 and reply.metadata.message_type == "train":
                words: Any = reply.content["tunefree"]
                data = words["bytes"]
                up = np.frombuffer(data[-4 * 21 :], np.float32) * np.float32(times)
                words["bytes"] = data[: -4 * 21] + up.tobytes()
            return reply

        nodes.change = larger
        run, _ = trained(nodes)
        assert not absences(run)
        ledger = ledger_of(nodes)
        sigma = run.record.facts().privacy["sigma"]
        ((value,),) = ledger._db.execute("SELECT value FROM released").fetchall()
        found.append(np.frombuffer(value, np.int64)[:21] * (sigma / 2**20))
    noise = run.record.facts().privacy["sigma"]
    assert np.abs(found[0] - found[1]).max() < 2 + 12 * noise


def test_two_federations_of_one_seed_have_different_noise(tmp_path: Path) -> None:
    runs = [trained(private(tmp_path / name))[0] for name in "ab"]
    assert runs[0].theta_sha256 != runs[1].theta_sha256
    sent = [run.record.uploads() for run in runs]
    assert sent[0] == sent[1]  # who takes part is no secret, and follows from the seed


def test_two_attempts_of_a_round_have_different_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first was undone before it was entered, and so has left nobody."""
    drawn: list[bytes] = []
    nodes, once = private(tmp_path), Ledger.once

    def undone(ledger: Ledger, key: str, release: Any, value: Any, *rest: Any) -> bytes:
        def failing() -> bytes:
            drawn.append(value())
            if len(drawn) == 1:
                raise OSError("the disk is full")
            return drawn[-1]

        return once(ledger, key, release, failing, *rest)

    monkeypatch.setattr(Ledger, "once", undone)
    with pytest.raises(OSError, match="the disk is full"):
        trained(nodes)
    assert ledger_of(nodes).spent() == 0
    trained(nodes, rounds=1)
    assert len(drawn) == 2
    assert drawn[0] != drawn[1]


def test_a_resumed_run_pays_once(tmp_path: Path) -> None:
    nodes = private(tmp_path)
    trained(nodes, rounds=3)
    half = ledger_of(nodes).spent()
    assert 0 < half < 8
    run, rows = trained(nodes)
    assert [row["t"] for row in rows] == [3, 4, 5, 6, 7]
    assert rows[-1]["epsilon"] == pytest.approx(8.0)
    assert run.record.uploads() == dict.fromkeys(range(6), 4)


KILLED = """
import os, signal, sys
from pathlib import Path

from tests.flower.test_federation import trained
from tests.flower.test_private import private
from tunefree.flower import membership, pace, transport
from tunefree.privacy.ledger import Ledger

pace.SHORTEST = pace.LONGEST = 0.001
transport.FRESH = 0.0
folder, where, at = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
once = Ledger.once


def killed(ledger, key, release, value, *rest):
    def drawn():
        found = value()
        if where == "before" and key == f"round {at}":
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    sums = once(ledger, key, release, drawn, *rest)
    if where == "after" and key == f"round {at}":
        os.kill(os.getpid(), signal.SIGKILL)
    return sums


Ledger.once = killed
trained(private(folder))
"""


@pytest.mark.parametrize(("where", "at"), [("before", 3), ("after", 0)])
def test_a_server_that_was_killed_pays_once_for_each_sum(
    where: str, at: int, tmp_path: Path
) -> None:
    """Between the entry and the release, and before the entry, by kill -9."""
    command = [sys.executable, "-c", KILLED, str(tmp_path), where, str(at)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    nodes = private(tmp_path)
    entered = f"SELECT key, value FROM released WHERE key = 'round {at}'"
    before = ledger_of(nodes)._db.execute(entered).fetchall()
    assert len(before) == (where == "after")
    spent = ledger_of(nodes).spent()
    values: list[bytes] = []
    run = federated(nodes)
    for row in run:
        if row["t"] == at:
            values = [value for _, value in ledger_of(nodes)._db.execute(entered)]
            asked = row["clients"]
            assert row["epsilon"] == pytest.approx(spent) or where == "before"
    assert asked == (0 if where == "after" else 3)
    assert where == "before" or values == [before[0][1]]  # the same sum, and the same noise in it
    assert ledger_of(nodes).spent() == pytest.approx(8.0)
    (rounds,) = ledger_of(nodes)._db.execute("SELECT COUNT(*) FROM released").fetchone()
    assert rounds == 8


def test_without_its_clients_a_round_waits_and_spends_nothing(tmp_path: Path) -> None:
    nodes = private(tmp_path, wait=0.5)
    run = federated(nodes)
    for row in run:
        if row["t"] == 1:
            break
    nodes.places = {}
    with pytest.raises(FleetError, match="no client was there within 0.5 s"):
        list(run)
    (rounds,) = ledger_of(nodes)._db.execute("SELECT COUNT(*) FROM released").fetchone()
    assert rounds == 2


def test_a_run_stops_at_its_budget_and_goes_on_with_a_larger_one(tmp_path: Path) -> None:
    """Only two of six clients are there, and may take part four times each."""
    nodes = private(tmp_path)
    trained(nodes, rounds=0)
    alone = private(tmp_path, wait=0.5)
    run = federated(alone)
    alone.places = {1000: 0, 1001: 1}
    with pytest.raises(FleetError, match=r"may take part once more under epsilon = 8; .* larger"):
        list(run)
    ledger = ledger_of(nodes)
    assert run.record.uploads() == {0: 4, 1: 4}
    assert ledger.spent() == pytest.approx(8.0)
    with pytest.raises(
        ConfigError, match="rounds = 8 would spend epsilon = 8 .* budget is 4; give"
    ):
        check_settings({**alone.run_config, "epsilon": 4.0}, tmp_path, build_model)
    sigma = run.record.facts().privacy["sigma"]
    nodes = private(tmp_path, epsilon=12.0)
    run = federated(nodes)
    rows = list(run)
    promise = run.record.facts().privacy
    assert (promise["epsilon"], promise["sigma"]) == (12.0, sigma)
    assert promise["limit"] > 4
    assert 8 <= rows[-1]["epsilon"] <= 12
    assert run.record.state == "done"


@pytest.mark.parametrize("change", [{"delta": 1e-6}, {"clip": 1.0}, {"participations": 5}])
def test_a_promise_cannot_be_changed_but_for_a_larger_budget(
    change: dict[str, Any], tmp_path: Path
) -> None:
    nodes = private(tmp_path)
    trained(nodes, rounds=1)
    ((name, value),) = change.items()
    with pytest.raises(ConfigError, match=f"{name} was .*, and now it is {value}"):
        federated(private(tmp_path, **change))
    with pytest.raises(ConfigError, match="was started with privacy, and cannot be resumed otherw"):
        federated(private(tmp_path, epsilon=0.0))


def test_more_rounds_than_the_budget_are_refused(tmp_path: Path) -> None:
    trained(private(tmp_path))
    with pytest.raises(ConfigError, match="rounds = 12 would spend epsilon = .* a larger epsilon"):
        federated(private(tmp_path, rounds=12))
    _, rows = trained(private(tmp_path, rounds=12, epsilon=12.0))
    assert [row["t"] for row in rows] == [8, 9, 10, 11]
    assert 8 < rows[-1]["epsilon"] <= 12


def test_secret_coins_decide_and_are_the_same_after_a_resume(tmp_path: Path) -> None:
    asked: dict[str, list[Any]] = {}
    for name in ("a", "b"):
        nodes = private(tmp_path / name, coins=True, rounds=12)
        trained(nodes, rounds=5)
        run, rows = trained(nodes)
        promise, history = run.record.facts().privacy, run.record.history()
        assert (promise["q"], promise["limit"]) == (0.5, 12)
        assert rows[-1]["epsilon"] == pytest.approx(8.0, rel=1e-3)
        assert run.record.absences() == []
        asked[name] = [row["clients"] for row in history[1:]]
        ((secret,),) = ledger_of(nodes)._db.execute("SELECT seed FROM secret")
        assert len(secret) == 32
        with closing(Record.open(Path(nodes.run_config["out"]))) as record:
            assert secret not in str(record.facts())
    assert len(set(asked["a"])) > 1
    assert asked["a"] != asked["b"]


def test_nobody_takes_the_place_of_one_whose_coin_fell(tmp_path: Path) -> None:
    nodes = private(tmp_path, coins=True, per_round=5, rounds=2)
    run = federated(nodes)
    nodes.places = {1000: 0}
    rows = list(run)
    assert all(row["clients"] <= 1 for row in rows)
    assert sum(row["absent"] for row in rows) > 2


def test_a_node_takes_part_only_as_often_as_its_own_config_allows(tmp_path: Path) -> None:
    """In all runs together, whatever a server asks."""
    nodes = private(tmp_path, per_round=6)
    nodes.node_config = {"participations": 3}
    _, rows = trained(nodes, rounds=3)
    assert [row["absent"] for row in rows] == [0, 0, 0, 0]
    with pytest.raises(FleetError, match="has sent 3 private uploads, and its node allows"):
        trained(nodes)
    again = private(tmp_path, per_round=6, out=str(tmp_path / "another.sqlite"))
    again.node_config = nodes.node_config
    with pytest.raises(FleetError, match="has sent 3 private uploads"):
        trained(again)
    plain = Nodes(tmp_path, range(3), config(tmp_path, out=str(tmp_path / "plain.sqlite")))
    plain.node_config = nodes.node_config
    with pytest.raises(FleetError, match="this client takes part in private runs only"):
        trained(plain)


def test_a_client_answers_no_question_about_its_data(tmp_path: Path) -> None:
    """Whatever the server asks: scores in a private run, anything but private work with a limit."""
    question = RecordDict({"tunefree": ConfigRecord({"who": "are you"})})
    private_run = private(tmp_path)
    limited = Nodes(tmp_path, [0], config(tmp_path, sampling="examples"))
    limited.node_config = {"participations": 3}
    for nodes in (private_run, limited):
        asked = Message(pack(None, encode(OpeningDown(torch.zeros(21)))), 1000, "evaluate")
        why = str(nodes.answer(1000, asked).error.reason)
        assert "scores on this client's own data are not private" in why
        said = nodes.answer(1000, Message(question, 1000, "query")).content["tunefree"]
        assert set(said) == {"place"}


def test_a_client_that_could_come_back_under_another_name_is_refused(tmp_path: Path) -> None:
    nodes = private(tmp_path, wait=0.5)
    nodes.node_config = {"partition-id": -1}
    with pytest.raises(FleetError, match="0 of 6 clients connected .*counts by partition-id how"):
        federated(nodes)


def test_the_same_job_counts_once_and_another_model_does_not(tmp_path: Path) -> None:
    take_part(tmp_path, b"job", 1)
    take_part(tmp_path, b"job", 1)
    with pytest.raises(ConfigError, match="has sent 1 private uploads"):
        take_part(tmp_path, b"another model", 1)
    take_part(tmp_path, b"another model", 2)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"evaluate_on_clients": True}, "epsilon = 8.0 cannot be promised: scores that are comp"),
        ({"schedule": "buffered"}, "cannot be promised: in the buffered schedule"),
        ({"algorithm": "polarfl"}, "cannot be promised: clients of PolarFL upload control var"),
        ({"sampling": "examples"}, "cannot be promised: sampling by size"),
        ({"local_epochs": 1, "local_steps": None}, "cannot be promised: with local epochs"),
        ({"participations": 2}, "participations = 2 is too small: 8 rounds of 3 of 6 clients"),
        ({"coins": True, "participations": 9}, "participations cannot be combined with coins"),
        ({"epsilon": 0.0, "coins": True}, "coins belongs to privacy; give epsilon too"),
        ({**FEDAVG, "epsilon": 0.5}, "the median norm cannot be followed privately"),
    ],
)
def test_what_cannot_be_promised_is_refused_before_anything_starts(
    more: dict[str, Any], says: str, tmp_path: Path
) -> None:
    given = private(tmp_path, **more).run_config
    given = {key: value for key, value in given.items() if value is not None}
    with pytest.raises(ConfigError, match=says):
        check_settings(given, tmp_path, build_model)
