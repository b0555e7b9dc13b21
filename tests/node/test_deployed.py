"""A deployed federation: SuperLink and nodes on loopback, with TLS and node keys."""

from __future__ import annotations

import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr")

import tunefree
from tunefree.flower.new_app import new_app
from tunefree.flower.status import live_path, status
from tunefree.flower.transport import FASTER
from tunefree.models import seeded
from tunefree.node.apps import bundle
from tunefree.node.control import LocalRun
from tunefree.node.keys import certificates, node_key
from tunefree.node.local.federation import Local, StockRun
from tunefree.node.local.processes import end_all, running
from tunefree.record import Record

NODES, PATIENCE = 3, 900
slow = pytest.mark.slow  # each starts a federation, which takes ten seconds

WRONG = """
import numpy as np
from tunefree.flower import client_work

right_data, right_encode = load_data, client_work.encode


def load_data(context):
    place = context.node_config["partition-id"]
    if place == 1:
        client_work.encode = lambda up: right_encode(up)[:-4] + np.float32(np.nan).tobytes()
    if place == 2:
        client_work.encode = lambda up: right_encode(up)[:-4]
    return right_data(context)
"""


class Federation:
    """A federation that runs the template's app, and the results of its run."""

    def __init__(self, folder: Path, nodes: int = NODES, **kinds: bool) -> None:
        self.folder, self.app, self.nodes = folder, folder / "digits", nodes
        new_app(self.app)
        self.local = Local(folder / "federation", nodes, tls=True, auth=True, **kinds)
        self.out = self.local.folder / "superlink" / "federation.sqlite"
        self.runs: list[LocalRun | StockRun] = []

    def run(self, **settings: Any) -> LocalRun | StockRun:
        usual: dict[str, Any] = {"clients": self.nodes, "rounds": 2, "local_steps": 2}
        usual["algorithm"] = "padamfed"
        usual |= {"deadline": 300.0, "wait": 600.0}
        self.runs.append(self.local.run(self.app, usual | settings))
        return self.runs[-1]

    @property
    def sums(self) -> dict[str, Any]:
        """The run config's keys of secure sums."""
        secure = self.local.secure
        return {"secure": True, "roster": str(self.local.roster)} if secure else {}

    def rounds(self) -> int:
        """Steps committed so far, the opening among them."""
        return steps_in(self.out)

    def wait(self, ready: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not ready():
            assert time.monotonic() < end, "it took too long"
            self.local.tend()
            time.sleep(0.1)

    def finish(self) -> dict[str, Any]:
        """What is in the run file at the end."""
        self.wait(self.runs[-1].over)
        with closing(Record.open(self.out)) as record:
            return {
                "state": record.state,
                "history": record.history(),
                "absent": record.absences(),
                "theta": record.vectors()["theta"],
                "facts": record.facts(),
            }


def steps_in(out: Path) -> int:
    if not out.exists():
        return 0
    with closing(sqlite3.connect(f"file:{out}?mode=ro", uri=True)) as reader:
        try:
            return int(reader.execute("SELECT COUNT(*) FROM step").fetchone()[0])
        except sqlite3.OperationalError:
            return 0


@contextmanager
def started(federation: Federation) -> Iterator[Federation]:
    """Stops all its processes afterwards."""
    with closing(federation.local):
        yield federation
        for run in federation.runs:
            run.end()


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    with started(Federation(tmp_path)) as one:
        yield one


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Federation]:
    """The smallest that tests everything: two nodes, which start at the same time."""
    with started(Federation(tmp_path, nodes=2)) as one:
        yield one


def simulate(federation: Any, algorithm: str, rounds: int, secure: bool = False) -> Any:
    """The same federation in the simulator."""
    task: dict[str, Any] = {}
    exec((federation.app / "digits" / "task.py").read_text(), task)
    nodes = federation.nodes
    places = [{"partition-id": i, "num-partitions": nodes} for i in range(nodes)]
    clients = [task["load_data"](SimpleNamespace(node_config=place)) for place in places]
    return tunefree.train(
        seeded(task["build_model"], seed=0),
        clients,
        task["load_test"](None),
        algorithm=algorithm,
        rounds=rounds,
        local_steps=2,
        batch_size=16,
        eval_every=1,
        secure=secure,
        progress=False,
    )


def assert_same_bits(federation: Federation, algorithm: str, rounds: int) -> None:
    secure = federation.local.secure
    federation.local.start()
    federation.run(algorithm=algorithm, rounds=rounds, **federation.sums)
    result = federation.finish()
    expected = simulate(federation, algorithm, rounds, secure)
    assert result["state"] == "done"
    assert not result["absent"]
    assert result["theta"].tobytes() == expected.theta.numpy().tobytes()
    for kind in ("bits_up", "bits_down", "accuracy", *(() if secure else ("samples",))):
        assert result["history"][-1][kind] == expected.history[-1][kind]


@pytest.mark.filterwarnings("ignore:the formula gives beta")
def test_the_same_bits_as_the_simulator(pair: Federation) -> None:
    """The opening writes each client's c_i to its disk, and the round uses it from there."""
    assert_same_bits(pair, "padamfed", rounds=1)


@slow
@pytest.mark.parametrize("algorithm", ["polarfl", "padamfed", "comparfrefl", "adamasfl"])
@pytest.mark.filterwarnings("ignore:the formula gives beta")
def test_the_same_bits_over_rounds(algorithm: str, federation: Federation) -> None:
    assert_same_bits(federation, algorithm, rounds=8)


def test_secure_sums_have_the_bits_of_the_simulator(tmp_path: Path) -> None:
    with started(Federation(tmp_path, secure=True)) as federation:
        assert_same_bits(federation, "polarfl", rounds=1)


@slow
def test_secure_sums_on_flowers_own_nodes(tmp_path: Path) -> None:
    with started(Federation(tmp_path, stock=True, secure=True)) as federation:
        assert_same_bits(federation, "polarfl", rounds=1)


@slow
def test_secure_sums_of_five_nodes_have_the_bits_of_the_simulator(tmp_path: Path) -> None:
    with started(Federation(tmp_path, nodes=5, secure=True)) as federation:
        assert_same_bits(federation, "polarfl", rounds=6)


@slow
def test_noise_on_secure_sums_of_real_nodes(tmp_path: Path) -> None:
    """Two runs are paid for to the last round, and differ in nothing but the noise."""
    pytest.importorskip("dp_accounting")
    found = []
    for name in "ab":
        with started(Federation(tmp_path / name, secure=True)) as federation:
            federation.local.start()
            given: dict[str, Any] = {"algorithm": "polarfl_stateless", "epsilon": 50.0, "rounds": 3}
            federation.run(**given, **federation.sums)
            found.append(federation.finish())
    for result in found:
        assert result["state"] == "done"
        assert not result["absent"]
        assert result["history"][-1]["epsilon"] == pytest.approx(50.0)
        assert result["facts"].privacy["trust"].startswith("the server, which sees sums")
    assert found[0]["theta"].tobytes() != found[1]["theta"].tobytes()


@slow
def test_secure_sums_survive_the_kill_of_two_of_five_nodes_in_a_round(tmp_path: Path) -> None:
    with started(Federation(tmp_path, nodes=5, secure=True)) as federation:
        federation.local.start()
        federation.run(algorithm="polarfl", rounds=12, deadline=60.0, **federation.sums)
        federation.wait(lambda: federation.rounds() >= 3)
        for place in (1, 3):
            os.killpg(federation.local.supernodes[place].pid, signal.SIGKILL)
        result = federation.finish()
        assert result["state"] == "done"
        assert all(row["clients"] >= 3 for row in result["history"][1:])
        assert {row["clients"] for row in result["history"][1:]} > {5}


@slow
@pytest.mark.filterwarnings("ignore:the formula gives beta")
def test_the_same_bits_on_flowers_own_nodes(tmp_path: Path) -> None:
    with started(Federation(tmp_path, nodes=2, stock=True)) as federation:
        assert_same_bits(federation, "padamfed", rounds=1)


@slow
@pytest.mark.filterwarnings("ignore:the formula gives beta")
def test_an_untested_flower_runs_on_its_own_nodes(tmp_path: Path) -> None:
    """`up` and the server's log say so, and the model is the same."""
    pretended = tmp_path / "site" / "flwr-1.99.0.dist-info"
    pretended.mkdir(parents=True)
    (pretended / "METADATA").write_text("Metadata-Version: 2.1\nName: flwr\nVersion: 1.99.0\n")
    new_app(tmp_path / "digits")
    config = "rounds=1 local_steps=2 algorithm='padamfed'"
    command = [sys.executable, "-m", "tunefree.cli", "flower", "up", str(tmp_path / "digits")]
    command += ["--nodes", "2", "--tls", "--auth", "--run-config", config]
    path = os.pathsep.join([str(pretended.parent), *sys.path])
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    untested = "flwr = 1.99.0 was not tested with tunefree's node, only 1.41 and 1.42"
    assert f"{untested}; Flower's own nodes run instead" in done.stderr
    assert "which is slower" in done.stderr or not entry_points(group=FASTER)
    federation = tmp_path / "digits-federation"
    assert "Starting Flower SuperNode" in (federation / "node0.log").read_text()
    with closing(Record.open(federation / "superlink" / "federation.sqlite")) as record:
        theta = record.vectors()["theta"]
    same = simulate(SimpleNamespace(app=tmp_path / "digits", nodes=2), "padamfed", rounds=1)
    assert theta.tobytes() == same.theta.numpy().tobytes()


@slow
@pytest.mark.filterwarnings("ignore:the formula gives beta")
def test_a_killed_up_is_followed_by_the_same_command(tmp_path: Path) -> None:
    """Its nine processes are ended, among them the run's server, and the run is resumed."""
    new_app(tmp_path / "digits")
    out = tmp_path / "digits-federation" / "superlink" / "federation.sqlite"
    command = [sys.executable, "-m", "tunefree.cli", "flower", "up", str(tmp_path / "digits")]
    config = "rounds=40 local_steps=2 algorithm='padamfed'"
    command += ["--nodes", "2", "--tls", "--auth", "--run-config", config]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as first:
        end = time.monotonic() + PATIENCE
        while steps_in(out) < 5:
            assert first.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
        first.kill()
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert "ended what a killed federation had left in" in again.stderr
    with closing(Record.open(out)) as record:
        theta = record.vectors()["theta"]
    same = simulate(SimpleNamespace(app=tmp_path / "digits", nodes=2), "padamfed", rounds=40)
    assert theta.tobytes() == same.theta.numpy().tobytes()
    assert not [words for _, words in running() if str(tmp_path) in words]


@slow
@pytest.mark.filterwarnings("ignore:the formula gives beta")
def test_a_killed_node_comes_back(federation: Federation) -> None:
    """It is restarted and admitted at once, and its state is on its disk."""
    local = federation.local
    local.start()
    federation.run(rounds=60, deadline=60.0)
    federation.wait(lambda: federation.rounds() >= 5)
    killed = local.supernodes[1]
    os.killpg(killed.pid, signal.SIGKILL)
    result = federation.finish()
    assert result["state"] == "done"
    assert local.supernodes[1] is not killed
    assert {client for _, _, client, _ in result["absent"]} <= {1}
    assert not [why for *_, why in result["absent"] if "lost" in why or "within" in why]
    assert result["history"][-1]["clients"] == NODES


@slow
@pytest.mark.filterwarnings("ignore:the formula gives beta")
def test_a_killed_worker_is_replaced(federation: Federation) -> None:
    federation.local.start()
    federation.run(rounds=60)
    federation.wait(lambda: federation.rounds() >= 5)
    os.kill(workers_of(federation.local.supernodes[1].pid)[0], signal.SIGKILL)
    result = federation.finish()
    assert result["state"] == "done"
    assert "and is replaced" in federation.local.log_file("node1").read_text()
    assert {why for *_, why in result["absent"]} <= {
        "its work failed: the client's worker ended (signal SIGKILL)"
    }
    assert result["history"][-1]["clients"] == NODES


def workers_of(node: int) -> list[int]:
    listed = subprocess.run(["ps", "-Ao", "pid=,ppid="], capture_output=True, text=True, check=True)
    pairs = [line.split() for line in listed.stdout.splitlines()]
    return [int(pid) for pid, parent in pairs if int(parent) == node]


def kill_link(local: Local) -> None:
    """Kill the SuperLink and its ServerApp at once, as a power cut would."""
    assert local.link is not None
    end_all([local.link.pid], [local.port], [signal.SIGKILL])
    local.link.wait()


@slow
@pytest.mark.parametrize("database", [True, False])
@pytest.mark.filterwarnings("ignore:the formula gives beta")
def test_a_run_resumes_after_superlink_and_server_are_killed(
    database: bool, tmp_path: Path
) -> None:
    """Without a database the SuperLink forgets the nodes' keys, which are registered again."""
    with started(Federation(tmp_path, database=database)) as federation:
        local = federation.local
        local.start()
        federation.run(rounds=30)
        federation.wait(lambda: federation.rounds() >= 5)
        kill_link(local)
        local.start_link()
        if not database:
            local.register(range(NODES))
        federation.run(rounds=30)
        result = federation.finish()
        assert result["state"] == "done"
        expected = simulate(federation, "padamfed", rounds=30)
        assert result["theta"].tobytes() == expected.theta.numpy().tobytes()


@slow
def test_a_private_run_pays_once_for_each_round_after_a_power_cut(pair: Federation) -> None:
    local, settings = pair.local, {"algorithm": "polarfl_stateless", "epsilon": 20.0, "rounds": 30}
    local.start()
    pair.run(**settings)
    for rounds in (5, 15):
        pair.wait(lambda rounds=rounds: pair.rounds() >= rounds)  # type: ignore[misc]
        kill_link(local)
        local.start_link()
        local.register(range(2))
        pair.run(**settings)
    result = pair.finish()
    assert result["state"] == "done"
    assert result["history"][-1]["epsilon"] == pytest.approx(20.0)
    assert [row["t"] for row in result["history"]] == [*range(-1, 30)]
    with closing(sqlite3.connect(pair.out)) as db:
        assert db.execute("SELECT COUNT(*) FROM released").fetchone() == (30,)
        assert [*db.execute("SELECT COUNT(*) FROM taken_part GROUP BY client")] == [(30,), (30,)]
    found = status(pair.out)["privacy"]
    assert (found["epsilon"], found["participations_left"]) == (20.0, {0: 0, 1: 0})
    for node in range(2):
        (counted,) = local.folder.glob(f"**/*{node}*/**/participations.sqlite")
        with closing(sqlite3.connect(counted)) as db:
            assert 30 <= db.execute("SELECT COUNT(*) FROM upload").fetchone()[0] <= 34


@slow
def test_a_node_with_an_unknown_key_is_refused(federation: Federation) -> None:
    local = federation.local
    local.start_link()
    node_key(local.key(9))
    local.start_node(9)
    federation.wait(lambda: "refuses this node" in local.log_file("node9").read_text())
    local.register([9])
    federation.wait(lambda: "connected to" in local.log_file("node9").read_text())


@slow
def test_a_node_runs_only_the_app_that_its_operator_approved(pair: Federation) -> None:
    local, approved = pair.local, pair.folder / "approved"
    approved.write_text(f"{'0' * 64}\n")
    local.start_link()
    local.register(range(2))
    for place in range(2):
        local.start_node(place, "--approve", str(approved))
    pair.run()
    for place in range(2):
        log = local.log_file(f"node{place}")
        pair.wait(lambda log=log: "is not approved on this node" in log.read_text())  # type: ignore[misc]
    page = live_path(pair.out)
    pair.wait(lambda: page.exists() and page.read_text().count("is not approved on this") == 2)
    assert page.stat().st_mode & 0o777 == 0o600
    approved.write_text(hashlib.sha256(bundle(pair.app)).hexdigest())
    assert pair.finish()["state"] == "done"


@slow
def test_a_node_reports_that_a_certificate_is_not_trusted(federation: Federation) -> None:
    local = federation.local
    local.start_link()
    certificates(local.folder / "certificates")  # another authority than the SuperLink's
    local.start_node(0)
    words = "has a certificate that is not trusted"
    federation.wait(lambda: words in local.log_file("node0").read_text())


@slow
def test_bad_replies_are_refused_and_named(federation: Federation) -> None:
    with (federation.app / "digits" / "task.py").open("a") as task:
        task.write(WRONG)
    federation.local.start()
    federation.run(opening="zero")
    result = federation.finish()
    assert result["state"] == "done"
    assert result["history"][-1]["clients"] == 1
    assert {(client, why) for _, _, client, why in result["absent"]} == {
        (1, "client 1 sent an unusable `dc`: a number is not finite"),
        (2, "client 2 sent an unusable `dc`: 4 bytes are missing"),
    }


@slow
@pytest.mark.filterwarnings("ignore:the formula gives beta")
def test_a_buffer_is_filled_as_replies_come(federation: Federation) -> None:
    federation.local.start()
    federation.run(algorithm="adamasfl", schedule="buffered", per_round=1, concurrency=3, rounds=6)
    result = federation.finish()
    assert result["state"] == "done"
    assert {row["clients"] for row in result["history"][1:]} == {1}
    assert max(row["tau_max"] for row in result["history"][1:]) >= 1
