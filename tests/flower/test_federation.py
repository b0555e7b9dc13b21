"""ServerApp and ClientApps together, on a Grid of nodes in this process."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("flwr")

import torch
from flwr.app import ConfigRecord, Error, Message, RecordDict

import tunefree
from tests.flower.nodes import Nodes, build_model, config, load_test, samples
from tunefree.core import Reply, System, bind
from tunefree.errors import ConfigError, FleetError
from tunefree.fleet.job import Done, Job
from tunefree.flower import envelope
from tunefree.flower.client_state import ClientState
from tunefree.flower.envelope import Answer, data_in, unpack
from tunefree.flower.federation import Federation
from tunefree.flower.ledger import Ledger
from tunefree.flower.run_file import check_settings
from tunefree.flower.serverapp import server_app
from tunefree.flower.status import status
from tunefree.methods.polarfl import PolarFL, Up
from tunefree.record import Record, Row
from tunefree.run.engine import Training
from tunefree.schedule.exchange import Absence
from tunefree.wire import encode

METHODS = ("polarfl", "padamfed", "comparfrefl", "adamasfl")
PLAYED: dict[str, dict[str, str]] = {  # one method within another
    "averaged": {"algorithm": "padamfed", "average": "on"},
    "averaged, compressed": {"algorithm": "comparfrefl", "average": "on"},
    "robust": {"algorithm": "polarfl", "robust": "median"},
    "robust, averaged": {"algorithm": "scaffold", "robust": "krum", "average": "on"},
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHORTEST", "LONGEST"):
        monkeypatch.setattr(f"tunefree.flower.pace.{name}", 0.001)
    monkeypatch.setattr("tunefree.flower.transport.FRESH", 0.0)
    monkeypatch.setattr("tunefree.flower.nodes.AGAIN", 0.01)


def federation(nodes: Nodes) -> Federation:
    return Federation(cast("Any", nodes), nodes.run_config, build_model, load_test(None))


def federated(nodes: Nodes) -> Training:
    return federation(nodes).run()


def absences(run: Training) -> tuple[Absence, ...]:
    """Of the last step."""
    assert run.step is not None
    return run.step.absent


def trained(nodes: Nodes, rounds: int | None = None) -> tuple[Training, list[Row]]:
    run = federated(nodes)
    rows = []
    steps = iter(run)
    for row in steps:
        rows.append(row)
        if rounds is not None and row["t"] + 1 == rounds:
            steps.close()
            break
    return run, rows


def of_clients(nodes: Nodes, run: Training, field: str = "c_i") -> list[np.ndarray[Any, Any]]:
    """The clients' own vectors, once they know the last accepted reply."""
    found = []
    federation = run.record.facts().federation
    numbers = {name: number for number, name in enumerate(run.record.facts().names)}
    for node, place in nodes.places.items():
        number = numbers[f"partition {place}"]
        with closing(ClientState(nodes.store(node) / f"{federation}.sqlite")) as state:
            ack = run.record.vectors(number)["ack"].tolist()
            owner = state._owners()[envelope.key_text(tuple(ack))]
            found.append((number, state._store.get(owner)[field]))
    return [vector for _, vector in sorted(found)]


def assert_means(nodes: Nodes, run: Training, N: int) -> None:
    server = run.record.vectors()
    assert int(server["N"]) == N == len(nodes.places)
    server |= {name.split(".")[-1]: vector for name, vector in server.items()}
    c_i = of_clients(nodes, run)
    np.testing.assert_allclose(server["c"], np.mean(c_i, axis=0), atol=2e-6)
    assert np.abs(server["c"]).max() > 1e-3
    if "known" in server:
        known = of_clients(nodes, run, "known")
        np.testing.assert_allclose(server["known"], np.mean(known), atol=1e-12)


@pytest.mark.parametrize("name", METHODS)
def test_the_same_bits_as_the_simulator(name: str, tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path, algorithm=name))
    run, rows = trained(nodes)
    torch.manual_seed(int(tunefree.core.stream(0, "model").integers(2**31)))
    simulated = tunefree.train(
        build_model(),
        [samples(place) for place in range(3)],
        samples(99),
        algorithm=name,
        rounds=8,
        local_steps=1,
        batch_size=8,
        eval_every=4,
        progress=False,
    )
    assert run.theta_sha256 == simulated.theta_sha256
    assert rows[-1]["accuracy"] == simulated.history[-1]["accuracy"]
    for kind in ("bits_up", "bits_down", "samples"):
        assert run.record.history()[-1][kind] == simulated.history[-1][kind]
    assert_means(nodes, run, N=3)
    assert run.record.path is not None
    loaded, (x, _) = tunefree.load(run.record.path, build_model()), samples(99)
    assert torch.equal(loaded(x), run.model(x))


def test_after_lost_replies_c_is_the_mean(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path, deadline=0.01))
    nodes.change = lambda node, reply: None if len(nodes.sent) % 4 == 3 else reply
    run, rows = trained(nodes)
    assert sum(row["absent"] for row in rows) > 3
    assert_means(nodes, run, N=3)


def test_a_restarted_server_resumes_bit_for_bit(tmp_path: Path) -> None:
    whole = Nodes(tmp_path / "a", range(3), config(tmp_path / "a"))
    run, _ = trained(whole)
    cut = Nodes(tmp_path / "b", range(3), config(tmp_path / "b"))
    trained(cut, rounds=5)
    again = Nodes(tmp_path / "b", range(3), cut.run_config)
    resumed, rows = trained(again)
    assert rows[0]["t"] == 5
    assert resumed.theta_sha256 == run.theta_sha256
    assert resumed.record.facts().state == "done"


def test_a_run_does_not_resume_as_another(tmp_path: Path) -> None:
    trained(Nodes(tmp_path, range(3), config(tmp_path)), rounds=2)
    with pytest.raises(ConfigError, match="seed was 0, and now it is 1") as error:
        federated(Nodes(tmp_path, range(3), config(tmp_path, seed=1)))
    assert "its first model was another one" in str(error.value)
    assert "start a new run: with another `out`" in str(error.value)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"local_steps": 2, "per_round": 2}, "local_steps was 1, .*; per_round was not given, and"),
        ({"local_steps": 2}, "local_steps was 1, and now it is 2; change it back"),
        ({"schedule": "buffered"}, "schedule was synchronous, and now it is buffered; change"),
        ({"algorithm": "fedprox"}, "algorithm was fedavg, and now it is fedprox; change it back"),
        ({"option.eta": 0.2}, "option.eta was 0.1, and now it is 0.2; change it back"),
        ({"batch_size": 4}, "batch_size was 8, and now it is 4; change it back"),
    ],
)
def test_a_changed_setting_is_named_by_its_key(
    given: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    usual: dict[str, Any] = {"algorithm": "fedavg", "option.eta": 0.1}
    trained(Nodes(tmp_path, range(3), config(tmp_path, **usual)), rounds=2)
    with pytest.raises(ConfigError, match=sentence):
        federated(Nodes(tmp_path, range(3), config(tmp_path, **usual | given)))


def test_a_file_with_another_kind_of_identity_is_not_resumed(tmp_path: Path) -> None:
    """As those of version 0.2.0, whose settings had other names."""
    nodes = Nodes(tmp_path, range(3), config(tmp_path))
    trained(nodes, rounds=2)
    with closing(Record.resume(Path(nodes.run_config["out"]))) as record:
        record.note(identity={"constants": "(0, 1, 8)", "first model": "f00"})
    with pytest.raises(ConfigError, match="was started by an earlier tunefree or elsewhere"):
        federated(nodes)


def test_a_run_of_polarfls_earlier_rule_is_not_resumed(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path, algorithm="polarfl"))
    trained(nodes, rounds=2)
    with closing(sqlite3.connect(nodes.run_config["out"])) as db, db:
        db.execute("DELETE FROM vector WHERE field IN ('g', 'known')")
    with pytest.raises(ConfigError, match="earlier rule of PolarFL, whose server had no g or kno"):
        federated(nodes)


@pytest.mark.parametrize("joins", ["a new client", "one without its state"])
def test_a_client_that_joins_was_never_heard_of(joins: str) -> None:
    """Its share of the known clients is 0, so that theirs falls and no share becomes negative."""
    theta0 = torch.ones(3)

    def build(N: int) -> PolarFL:
        return bind(PolarFL(), System(N=N, S=3, K=1, T=9))

    ledger = Ledger(build, theta0, lambda owner: {})
    ledger.N = 3
    jobs = [Job(i, 0, "round", 0, None) for i in range(3)]
    done = [Done(job.key, Up(i + theta0, 1.0), 5, 1) for i, job in enumerate(jobs)]
    replies = [Reply(job.client, 5, 0, each.up) for job, each in zip(jobs, done, strict=True)]
    server = build(3).aggregate(build(3).server(theta0), replies)
    ledger.accept(list(zip(jobs, done, strict=True)))
    assert server.known == 1
    server = ledger.enter(server, 3 if joins == "a new client" else 2, None, None)
    assert ledger.N * server.known == pytest.approx(3 if joins == "a new client" else 2)
    expected = (1 + 2 + 3) / 4 if joins == "a new client" else (1 + 2) / 3
    torch.testing.assert_close(server.c, torch.full((3,), expected))


def rounds_of(tmp_path: Path, rounds: int, algorithm: str = "scaffold") -> Nodes:
    return Nodes(tmp_path, range(3), config(tmp_path, algorithm=algorithm, rounds=rounds))


@pytest.mark.parametrize("first", [2, 5, None])
def test_a_run_resumes_for_more_rounds(first: int | None, tmp_path: Path) -> None:
    whole, _ = trained(rounds_of(tmp_path / "a", 8))
    trained(rounds_of(tmp_path / "b", 5), first)
    longer, rows = trained(rounds_of(tmp_path / "b", 8))
    assert rows[0]["t"] == (first or 5)
    assert longer.theta_sha256 == whole.theta_sha256
    for client in range(3):
        ours, theirs = (run.record.vectors(client) for run in (longer, whole))
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[field], theirs[field]) for field in ours)
    facts = longer.record.facts()
    assert (facts.system["T"], facts.settings["rounds"], facts.state) == (8, 8, "done")
    _, rows = trained(rounds_of(tmp_path / "b", 8))
    assert rows == []


def test_a_longer_run_that_found_no_clients_can_be_resumed(tmp_path: Path) -> None:
    trained(rounds_of(tmp_path, 3))
    alone = Nodes(tmp_path, range(0), config(tmp_path, algorithm="scaffold", rounds=5, wait=0.01))
    with pytest.raises(FleetError):
        federated(alone)
    _, rows = trained(rounds_of(tmp_path, 5))
    assert [row["t"] for row in rows] == [3, 4]


@pytest.mark.parametrize(
    ("algorithm", "rounds", "sentence"),
    [
        ("padamfed", 8, "PAdaMFed's steps depend on T .*: a run of 5 rounds cannot become one of"),
        ("scaffold", 4, "rounds = 4 is too small: .* has finished 5 of its 5 rounds already"),
    ],
)
def test_a_run_cannot_have_these_rounds(
    algorithm: str, rounds: int, sentence: str, tmp_path: Path
) -> None:
    trained(rounds_of(tmp_path, 5, algorithm))
    before = Path(config(tmp_path)["out"]).read_bytes()
    with pytest.raises(ConfigError, match=sentence):
        federated(rounds_of(tmp_path, rounds, algorithm))
    assert Path(config(tmp_path)["out"]).read_bytes() == before


@pytest.mark.parametrize("schedule", ["synchronous", "buffered"])
@pytest.mark.parametrize("name", METHODS)
def test_after_a_client_joined_c_is_the_mean(name: str, schedule: str, tmp_path: Path) -> None:
    settings = config(tmp_path, algorithm=name, schedule=schedule)
    nodes = Nodes(tmp_path, range(3), settings)
    run = federated(nodes)
    for row in run:
        if row["t"] == 4:
            nodes.places[1007] = 7
    assert run.algo.sys.N == 4
    assert row["clients"] == 4 or schedule == "buffered"
    assert_means(nodes, run, N=4)
    assert run.record.facts().system["N"] == 4


@pytest.mark.parametrize("opening", ["gradients", "zero"])
@pytest.mark.parametrize("name", METHODS)
def test_after_a_lost_disk_c_is_the_mean(name: str, opening: str, tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path, algorithm=name, opening=opening))
    run = federated(nodes)
    reasons = []
    for row in run:
        reasons += [why for _, _, why in absences(run)]
        if row["t"] == 4:
            shutil.rmtree(nodes.store(1001))
    assert reasons == ["it has lost its state"]
    assert_means(nodes, run, N=3)


def carries(content: RecordDict) -> bool:
    """Whether it contains a message of ours."""
    records = [content.get(name) for name in ("tunefree", "message")]
    return any("bytes" in record for record in records if record is not None)


def changed(reply: Message, what: str) -> Message:
    if not carries(reply.content):
        return reply
    answer: Answer = unpack(reply.content, Answer, "it")
    data = data_in(reply.content, "it")
    if what == "raises":
        raise AssertionError
    if what == "another job":
        return Message(envelope.pack(answer._replace(t=answer.t + 1), data), reply_to=asked(reply))
    if what == "foreign":
        return Message(RecordDict({"x": ConfigRecord({"y": 1})}), reply_to=asked(reply))
    if what == "no samples":
        return Message(envelope.pack(answer._replace(n=0), data), reply_to=asked(reply))
    if what == "nan":
        data = data[:-4] + np.float32(np.nan).tobytes()
    if what == "huge":
        data = data[:-4] + np.float32(1e20).tobytes()
    if what == "short":
        data = data[:-4]
    return Message(envelope.pack(answer, data), reply_to=asked(reply))


def asked(reply: Message) -> Message:
    """A message that this one can be a reply to."""
    message = Message(RecordDict(), 1, "train")
    message.metadata.__dict__["_message_id"] = reply.metadata.reply_to_message_id
    message.metadata.__dict__["_run_id"] = 1
    return message


BAD = {
    "nan": "client 1 sent an unusable `dc`: a number is not finite",
    "short": "client 1 sent an unusable `dc`: 4 bytes are missing",
    "foreign": "client 1 sent no envelope of ours",
    "another job": "client 1 answered another job",
    "no samples": "client 1 reports that it has 0 samples and drew 8",
}


@pytest.mark.parametrize("schedule", ["synchronous", "buffered"])
@pytest.mark.parametrize("what", BAD)
def test_a_bad_reply_is_refused_and_named(what: str, schedule: str, tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path, rounds=8, schedule=schedule))
    run = federated(nodes)
    for row in run:
        if row["t"] < 0:
            nodes.change = lambda node, reply: changed(reply, what) if node == 1001 else reply
        else:
            assert [(client, why) for _, client, why in absences(run)] == [(1, BAD[what])]
            assert row["clients"] == 2
    nodes.change = lambda node, reply: reply
    assert row["t"] == 7
    with closing(Record.open(Path(nodes.run_config["out"]))) as record:
        assert {why for *_, why in record.absences()} == {BAD[what]}


@pytest.mark.parametrize("schedule", ["synchronous", "buffered"])
def test_a_client_is_quarantined_after_a_restart_too_until_readmitted(
    schedule: str, tmp_path: Path
) -> None:
    nodes = Nodes(tmp_path, range(4), config(tmp_path, rounds=12, per_round=3, schedule=schedule))
    trained(nodes, rounds=1)
    nodes.change = lambda node, reply: changed(reply, "huge") if node == 1001 else reply
    trained(nodes, rounds=9)
    file = Path(nodes.run_config["out"])
    with closing(Record.open(file)) as record:
        refused = [(client, why) for _, _, client, why in record.absences()]
        assert record.quarantined() == [1]
    assert [client for client, _ in refused] == [1, 1, 1]
    assert "times as large as is usual, 3 times in a row: quarantined" in refused[-1][1]
    assert status(file)["quarantined"] == [1]
    nodes.change = lambda node, reply: reply
    nodes.run_config["readmit"] = "1"
    trained(nodes)
    with closing(Record.open(file)) as record:
        assert record.quarantined() == []
        assert len(record.absences()) == 3
    assert_means(nodes, federated(nodes), 4)


def test_a_client_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path, rounds=4))
    monkeypatch.setattr(
        "tests.flower.nodes.samples", lambda place: 1 / 0 if place == 2 else samples(place)
    )
    run, _ = trained(nodes)
    assert absences(run)[0][1:] == (2, "its work failed: division by zero")


def test_a_clients_error_is_shown_short_and_without_control_characters(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path, rounds=4, opening="zero"))
    hostile = "\x1b[31mred\x1b[0m\x07\x1b]0;title\x07 " + "x" * 10_000

    def broken(node: int, reply: Message) -> Message:
        job = nodes.sent[-1].metadata.message_type == "train"
        return (
            Message(Error(2, hostile), reply_to=nodes.sent[-1]) if job and node == 1001 else reply
        )

    nodes.change = broken
    run, _ = trained(nodes)
    (_, _, why) = absences(run)[0]
    assert why.startswith("its work failed: red  ]0;title  xxx")
    assert len(why) == 500
    assert why.isprintable()
    with closing(Record.open(Path(nodes.run_config["out"]))) as record:
        assert {each for *_, each in record.absences()} == {why}


def test_too_few_replies_stop_a_run_that_can_be_resumed(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path, at_least=3, deadline=0.01))
    run = federated(nodes)
    rows = iter(run)
    while next(rows)["t"] < 5:
        pass
    nodes.change = lambda node, reply: None if node == 1000 else reply
    with pytest.raises(FleetError, match="2 usable replies came at t = 6, fewer than at_least = 3"):
        next(rows)
    nodes.change = lambda node, reply: reply
    assert run.record.facts().state == "interrupted"
    _, later = trained(nodes)
    assert [later[0]["t"], later[-1]["t"]] == [6, 7]


def test_the_wait_for_clients_ends(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, [0], config(tmp_path, wait=0.05))
    with pytest.raises(FleetError, match="1 of 3 clients connected within 0.05 s"):
        federated(nodes)


def test_a_disconnected_client_is_replaced_by_another(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, range(4), config(tmp_path, clients=4, per_round=2))
    run = federated(nodes)
    for row in run:
        if row["t"] == 5:
            del nodes.places[1002]
        if row["t"] >= 0:
            assert row["clients"] == 2
    assert 2 in run.record.uploads()


def test_a_late_reply_in_a_buffer_is_as_old_as_its_download(tmp_path: Path) -> None:
    settings = config(
        tmp_path, algorithm="adamasfl", schedule="buffered", clients=5, per_round=2, concurrency=4
    )
    nodes = Nodes(tmp_path, range(5), settings)
    nodes.most = 1
    run, rows = trained(nodes)
    late = run.record.staleness()
    assert {0, 1} <= set(late)
    assert max(late) < 8
    assert {row["clients"] for row in rows if row["t"] >= 0} == {2}
    assert_means(nodes, run, N=5)


def test_replies_that_come_together_fill_one_buffer_after_the_other(tmp_path: Path) -> None:
    settings = config(
        tmp_path, algorithm="adamasfl", schedule="buffered", clients=5, per_round=1, concurrency=5
    )
    nodes = Nodes(tmp_path, range(5), settings)
    run, rows = trained(nodes)
    assert {row["clients"] for row in rows if row["t"] >= 0} == {1}
    assert max(run.record.staleness()) == 4
    assert_means(nodes, run, N=5)


def test_a_second_node_with_the_same_partition_is_refused(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path))
    nodes.places[2000] = 1
    run, _ = trained(nodes, rounds=3)
    assert run.algo.sys.N == 3
    refused = cast("Any", run.members)._nodes.refused
    assert "partition 1 is connected already" in refused[2000]


def test_what_is_sent_is_our_codec_and_a_known_frame(tmp_path: Path) -> None:
    from flwr.common.serde import recorddict_to_proto

    nodes = Nodes(tmp_path, range(3), config(tmp_path))
    run, _ = trained(nodes)
    frames = []
    for message in [*nodes.sent, *nodes.received]:
        if carries(message.content):
            whole = recorddict_to_proto(message.content).ByteSize()
            frames.append(whole - len(data_in(message.content, "it")))
    assert 120 < min(frames) <= max(frames) < 170
    up = [r for r in nodes.received if carries(r.content)]
    sizes = sum(len(data_in(r.content, "it")) for r in up)
    d = run.theta.numel()
    from tunefree.core import OpeningUp
    from tunefree.methods.control import Up

    head = len(encode(Up(torch.zeros(d), torch.zeros(d)))) - 8 * d
    first = len(encode(OpeningUp(torch.zeros(d)))) - 4 * d
    assert sizes == run.record.history()[-1]["bits_up"] / 8 + 24 * head + 3 * first


def test_clients_can_be_asked_for_their_own_scores(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path, evaluate_on_clients=True))
    _, rows = trained(nodes)
    assert 0 < rows[-1]["train_loss"] < 1.2
    assert rows[-1]["train_accuracy"] > 0.5


@pytest.mark.parametrize("opening", ["gradients", "zero"])
def test_the_only_client_may_join_anew(opening: str, tmp_path: Path) -> None:
    """Without an opening, there is a round in which nobody works."""
    nodes = Nodes(tmp_path, [0], config(tmp_path, clients=1, opening=opening))
    run = federated(nodes)
    for row in run:
        if row["t"] == 2:
            shutil.rmtree(nodes.store(1000))
    assert [len(row) for row in (run.record.absences(),)] == [1]
    assert_means(nodes, run, N=1)


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("name", PLAYED)
def test_a_method_within_another_keeps_its_means(name: str, lost: bool, tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path, **PLAYED[name]))
    trained(nodes, 3)
    run = federated(nodes)  # resumed
    for row in run:
        if row["t"] == 3 and lost:
            shutil.rmtree(nodes.store(1001))
        elif row["t"] == 3:
            nodes.places[1007] = 7
    if "robust" not in name:
        return assert_means(nodes, run, N=3 + (not lost))
    kept = {key.split(".")[-1]: value for key, value in run.record.vectors().items()}
    np.testing.assert_allclose(kept["c_i"], of_clients(nodes, run), atol=2e-6)
    assert len(kept["c_i"]) == 3 + (not lost)
    assert kept["heard"].tolist() == [1.0] * len(kept["c_i"])


def test_a_federation_goes_back_once_and_leaves_a_client_out(tmp_path: Path) -> None:
    given = config(tmp_path, algorithm="polarfl", rounds=12)
    whole, _ = trained(Nodes(tmp_path, range(3), given))
    assert (whole.step and whole.step.t) == 11
    back = {**given, "from_round": 8, "without": "1"}
    run, rows = trained(Nodes(tmp_path, range(3), back), 10)
    assert [row["t"] for row in rows] == [8, 9]
    assert run.record.left_out() == [1]
    run, rows = trained(Nodes(tmp_path, range(3), back))  # killed and started again
    assert [row["t"] for row in rows] == [10, 11]
    assert 1 not in [client for _, client, _ in absences(run)]
    shares = [run.record.vectors(client)["c"] for client in range(3)]
    assert not shares[1].any()
    np.testing.assert_allclose(run.record.vectors()["c"], np.mean(shares, axis=0), atol=2e-6)
    assert {each["client"] for each in status(Path(given["out"]))["evidence"]} == {0, 1, 2}


def test_weights_do_not_follow_what_a_client_says_later(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path, algorithm="fedavg", weighting="examples"))
    run = federated(nodes)
    fleet = run._environment.fleet  # type: ignore[attr-defined]
    assert [fleet.nodes.trusted(1, n) for n in (5, 25, 10**9)] == [5, 25, 25]
    fleet.nodes._sizes["partition 1"] = 10**9  # it said so at the start
    assert fleet.nodes.trusted(1, 10**9) == 10 * 26


def test_a_slow_new_client_joins_in_the_end(tmp_path: Path) -> None:
    """Its opening may take longer than several steps of a buffer."""
    nodes = Nodes(tmp_path, range(3), config(tmp_path, schedule="buffered", deadline=60.0))
    later: list[tuple[str, Message]] = []

    def late(node: int, reply: Message) -> Message | None:
        if node == 1007 and carries(reply.content) and not later:
            later.append((reply.metadata.reply_to_message_id, reply))
            return None
        return reply

    nodes.change = late
    run = federated(nodes)
    for row in run:
        if row["t"] == 1:
            nodes.places[1007] = 7
        if row["t"] == 5:
            nodes._ready.update(later)
    assert run.algo.sys.N == 4
    assert not run.record.absences()
    assert_means(nodes, run, N=4)


def test_a_round_does_not_wait_for_a_disconnected_node(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path, rounds=4, deadline=600.0))

    def leaves(node: int, reply: Message) -> Message | None:
        if node == 1001 and carries(reply.content):
            nodes.places.pop(node, None)
            return None
        return reply

    run = federated(nodes)
    for row in run:
        if row["t"] == 0:
            nodes.change = leaves
        if row["t"] == 1:
            assert absences(run) == (Absence(0, 1, "it disconnected during its job"),)
            assert row["clients"] == 2
    assert row["t"] == 3


class Slow(Nodes):
    """One node that takes longer than the deadline for its first job of a round."""

    def __init__(self, folder: Path, run_config: dict[str, Any]) -> None:
        super().__init__(folder, range(run_config["clients"]), run_config)
        self.pending: list[tuple[str, Message]] = []
        self.jobs: list[int] = []  # of the slow node
        self.change = self.delay

    def delay(self, node: int, reply: Message) -> Message | None:
        if node != 1001 or not carries(reply.content):
            return reply
        t = unpack(reply.content, Answer, "it").t
        self.jobs.append(t)
        if t < 0 or self.pending:
            return reply
        self.pending.append((reply.metadata.reply_to_message_id, reply))
        return None


def test_a_late_client_gets_no_further_job_until_it_answers(tmp_path: Path) -> None:
    nodes = Slow(tmp_path, config(tmp_path, rounds=6, deadline=0.4))
    run = federated(nodes)
    reasons = []
    for row in run:
        reasons += [why.split(" within")[0] for _, _, why in absences(run)]
        if row["t"] == 1:
            nodes._ready.update(nodes.pending)
    assert reasons[:2] == ["its reply did not arrive", "it is still working on an earlier job"]
    assert nodes.jobs[:2] == [-1, 0]
    assert 1 not in nodes.jobs
    assert row["clients"] == 3
    assert_means(nodes, run, N=3)


def test_a_late_client_is_replaced_in_the_cohort(tmp_path: Path) -> None:
    nodes = Slow(tmp_path, config(tmp_path, clients=4, per_round=2, deadline=2.0))
    _, rows = trained(nodes)
    assert sum(row["absent"] for row in rows) == 1  # when it became late
    assert len(nodes.jobs) == 2


def test_what_a_client_took_extends_its_deadline(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path, deadline=10.0))
    fleet = federation(nodes).fleet
    fleet._took = {0: 1.0, 1: 12.0, 2: 100.0}
    assert [fleet._allowed(client) for client in range(4)] == [10.0, 18.0, 30.0, 10.0]


def test_settings_are_checked_before_anything_is_written(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path, algorithm="padamfd"))
    with pytest.raises(ConfigError, match="did you mean 'padamfed'"):
        federated(nodes)
    assert not nodes.sent
    assert not Path(nodes.run_config["out"]).exists()
    with pytest.raises(ConfigError, match="did you mean 'padamfed'"):
        check_settings(nodes.run_config, tmp_path, build_model)


def test_a_run_without_a_step_may_start_anew_as_another(tmp_path: Path) -> None:
    with pytest.raises(FleetError):
        federated(Nodes(tmp_path, [], config(tmp_path, wait=0.01)))
    _, rows = trained(Nodes(tmp_path, range(3), config(tmp_path, algorithm="scaffold", rounds=2)))
    assert rows[-1]["t"] == 1


def test_a_server_that_waits_for_its_clients_keeps_its_file(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path))
    refused: list[str] = []

    def second(node: int, reply: Message) -> Message:
        nodes.change = lambda node, reply: reply
        with pytest.raises(ConfigError, match="is being written by") as error:
            federated(Nodes(tmp_path, range(3), config(tmp_path)))
        refused.append(str(error.value))
        return reply

    nodes.change = second  # at the first hello, before a step is in the file
    run, _ = trained(nodes)
    assert refused
    with closing(Record.open(Path(nodes.run_config["out"]))) as record:
        assert record.last() is not None
        assert record.theta_sha256() == run.theta_sha256


def test_changed_settings_of_a_finished_run_are_refused_without_a_node(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path))
    trained(nodes)
    check_settings(nodes.run_config, tmp_path, build_model)
    for changed_setting, sentence in (
        ({"seed": 1}, "seed was 0"),
        ({"rounds": 9}, "depend on T"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            check_settings({**nodes.run_config, **changed_setting}, tmp_path, build_model)


def test_the_spread_of_clients_scores_is_stored(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path, evaluate_on_clients=True, rounds=4))
    ours = federation(nodes)
    last = list(ours.run())[-1]
    by_client = ours.fleet.by_client
    assert sorted(by_client) == [0, 1, 2]
    values = [scores["accuracy"] for scores in by_client.values()]
    assert (last["train_accuracy_worst"], last["train_accuracy_best"]) == (min(values), max(values))
    assert last["train_accuracy"] == pytest.approx(sum(values) / 3)


def test_a_large_message_is_an_array_and_a_small_one_is_in_the_envelope() -> None:
    words = Answer("run", 1, 2, 0, 3, 4, lost=False)
    for size, records in ((10, ["tunefree"]), (envelope.SMALL + 1, ["tunefree", "message"])):
        content = envelope.pack(words, bytes(size))
        assert list(content) == records
        assert unpack(content, Answer, "it") == words
        assert data_in(content, "it") == bytes(size)


def test_the_end_after_silence_names_what_failed(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path, opening="zero"))
    failed = "no usable reply came for 3 steps in a row, .*clients 0, 1, 2: its work failed: no 'x'"

    def broken(node: int, reply: Message) -> Message:
        hello = "train" not in nodes.sent[-1].metadata.message_type
        return reply if hello else Message(Error(2, "Traceback\nno 'x'"), reply_to=nodes.sent[-1])

    nodes.change = broken
    with pytest.raises(FleetError, match=failed):
        trained(nodes)


def test_a_resumed_round_reports_its_own_seconds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path))
    trained(nodes, rounds=2)
    out = Path(nodes.run_config["out"])
    with closing(sqlite3.connect(out)) as db, db:
        db.execute("UPDATE step SET seconds = 1000")
    app, context = server_app(build_model), SimpleNamespace(run_config=nodes.run_config)
    with caplog.at_level("INFO", logger="flwr"):
        app(cast("Any", nodes), cast("Any", context))
        (third,) = [line for line in caplog.messages if line.startswith("round 3/8")]
        assert "clients in 0." in third
        assert "finished already" not in caplog.text
        app(cast("Any", nodes), cast("Any", context))
        assert "this run was finished already; raise rounds to continue it" in caplog.text


def test_a_part_of_the_model_stays_with_each_client(tmp_path: Path) -> None:
    more = {"local": "bias", "algorithm": "polarfl", "evaluate_on_clients": True}
    nodes = Nodes(tmp_path, range(3), config(tmp_path, **more))
    with pytest.raises(ConfigError, match="omit `test`, and set evaluate_on_clients"):
        federation(nodes)
    run = Federation(cast("Any", nodes), nodes.run_config, build_model).run()
    rows = list(run)
    assert run.theta.numel() == 18
    torch.manual_seed(int(tunefree.core.stream(0, "model").integers(2**31)))
    clients = [samples(place) for place in range(3)]
    sizes: Any = {"rounds": 8, "local_steps": 1, "batch_size": 8, "progress": False}
    simulated = tunefree.train(build_model(), clients, local=["bias"], **sizes)
    assert run.theta_sha256 == simulated.theta_sha256
    for client, own in enumerate(of_clients(nodes, run, "own")):
        model: Any = simulated.model_of(client)
        assert np.array_equal(own, model.bias.detach().numpy())
    scores = [row["loss"] for row in simulated.client_scores()]
    assert rows[-1]["train_loss"] == pytest.approx(np.mean(scores))
    assert np.std(scores) > 1e-3
