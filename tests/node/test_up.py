"""`tunefree flower` without a federation: what is refused before a start, and what is bundled."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import time
import zipfile
from contextlib import nullcontext, suppress
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("flwr")

from filelock import FileLock
from flwr.app import Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo

from tests.flower.nodes import Nodes, build_model, config, load_test
from tunefree.cli import main
from tunefree.errors import ConfigError
from tunefree.flower.federation import federation
from tunefree.flower.live import WAITING, Live
from tunefree.flower.new_app import new_app
from tunefree.flower.pace import Pace
from tunefree.flower.status import status
from tunefree.node.local.certificates import node_key
from tunefree.node.local.federation import command_line
from tunefree.node.local.up import UpOptions, command_for, default_folder
from tunefree.node.versions import require


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An app, in an environment that cannot start a federation."""
    monkeypatch.setattr("tunefree.node.local.up.Local", None)
    new_app(tmp_path / "digits")
    return tmp_path / "digits"


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--run-config", "algorithm='padamfd'"], "did you mean 'padamfed'?"),
        (["--run-config", "rounds=0"], "tunefree: rounds = 0 is too small"),
        (["--run-config", "rounds 5"], "--run-config 'clients=4 rounds 5' cannot be read"),
        (["--run-config", "local-epochs=2"], "--run-config local-epochs is not among the keys"),
        (["--folder", "digits/here"], "is inside the app"),
    ],
)
def test_a_setting_is_refused_before_anything_starts(
    flags: list[str],
    sentence: str,
    app: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(app.parent)
    assert main(["flower", "up", "digits", *flags]) == 2
    assert sentence in capsys.readouterr().err
    assert not default_folder(app).exists()


def test_no_key_certificate_or_run_file_is_bundled(app: Path) -> None:
    for name in ("node.key", "certificates/ca.crt", "run.sqlite", "keys/node0", "keys/a.py"):
        (app / name).parent.mkdir(exist_ok=True)
        (app / name).write_text("secret")
    node_key(app / "keys" / "node1")
    names = zipfile.ZipFile(io.BytesIO(require().bundle(app))).namelist()
    code = [f"digits/{name}.py" for name in ("__init__", "client_app", "server_app", "task")]
    assert sorted(names) == [".info/CONTENT", *code, "pyproject.toml"]
    assert not default_folder(app).is_relative_to(app)


def test_an_old_federation_inside_an_app_is_named(
    app: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (app / "federation" / "superlink").mkdir(parents=True)
    assert main(["flower", "up", str(app)]) == 2
    assert f"mv {app / 'federation'} {default_folder(app)}" in capsys.readouterr().err


def test_an_untested_version_of_flower_is_refused_with_the_alternative(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "1.50.0")
    assert main(["flower", "node", "--superlink", "127.0.0.1:1", "--insecure"]) == 2
    told = capsys.readouterr().err
    assert "flwr = 1.50.0 was not tested with tunefree's node, only 1.41 and 1.42" in told
    assert "flower-supernode" in told


def test_a_node_without_what_it_needs_is_refused(tmp_path: Path) -> None:
    private = require()
    (tmp_path / "key").write_text("-----BEGIN PRIVATE KEY-----")
    with pytest.raises(ConfigError, match="is not an elliptic-curve key in OpenSSH's format"):
        private.load_key(tmp_path / "key")
    with pytest.raises(ConfigError, match="cannot be read"):
        private.read_certificates(tmp_path / "ca.crt")


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with an empty file, an empty folder and a node's key."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    node_key(tmp_path / "key")
    return tmp_path


NODE = "node --superlink 127.0.0.1:1"
REGISTER = "register --superlink 127.0.0.1:1"
TLS = f"{NODE} --root-certificates"


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("new file", "'file' cannot be written (File exists); choose another folder"),
        ("new file/app", "'file/app' cannot be written (Not a directory)"),
        ("up missing", "'missing' has no pyproject.toml"),
        ("up file", "'file' has no pyproject.toml"),
        ("status missing", "'missing' is not a run file, and no run of a federation was found"),
        ("status empty", "'empty' is not a run file, and no run of a federation was found"),
        ("status file", "'file' is not a run file"),
        ("node --superlink host:port --insecure", "--superlink 'host:port' is not HOST:PORT"),
        ("node --superlink host:99999 --insecure", "--superlink 'host:99999' is not HOST:PORT"),
        ("node --superlink https://host:1", "--superlink 'https://host:1' is not HOST:PORT"),
        (f"{NODE} --insecure --node-config store='file'", "store = 'file' cannot be written"),
        (f"{NODE} --insecure --node-config store='file/x'", "store = 'file/x' cannot be written"),
        (f"{NODE} --insecure --node-config no.toml", "--node-config 'no.toml' cannot be read (No"),
        (f"{NODE} --insecure --node-config word", "'partition-id=0 num-partitions=4 store="),
        (f"{NODE} --key empty", "--key 'empty' cannot be read (Is a directory)"),
        (f"{TLS} empty --key key", "--root-certificates 'empty' cannot be read (Is a directory)"),
        (f"{TLS} file --key key", "--root-certificates 'file' contains no certificate"),
        (f"{TLS} key.pub --key key", "--root-certificates 'key.pub' contains no certificate"),
        (f"{REGISTER} missing.pub", "'missing.pub' cannot be read (No such file or directory)"),
        (f"{REGISTER} empty", "'empty' cannot be read (Is a directory)"),
        (f"{REGISTER} key.pub file", "'file' is not an elliptic-curve public key"),
        (f"{REGISTER} key", "'key' is not an elliptic-curve public key"),
        ("register --superlink host:port key.pub", "--superlink 'host:port' is not HOST:PORT"),
        (f"{REGISTER} --root-certificates file key.pub", "'file' contains no certificate"),
    ],
)
def test_an_operators_mistake_is_one_sentence(
    command: str, sentence: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["flower", *command.replace("'", '"').split()]) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert err.startswith("tunefree: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("path", "text", "sentence"),
    [
        ("pyproject.toml", "[[", "pyproject.toml' is not valid TOML"),
        ("pyproject.toml", "tool.flwr = 3", "pyproject.toml' has no [tool.flwr.app] section"),
        ("pyproject.toml", "[tool.flwr.app]", 'Property "publisher" missing in [tool.flwr.app]'),
        ("{}/server_app.py", "app = 3", "server_app:app' of '{app}' is not a Flower ServerApp"),
        ("{}/server_app.py", "", "fails (ValueError: Unable to load attribute app"),
        ("{}/task.py", "def (", "fails (SyntaxError: invalid syntax (task.py, line 1)"),
        ("{}/task.py", "\n1 / 0", "task.py, line 2: division by zero); correct it"),
        ("{}/task.py", "import not_there", "ModuleNotFoundError"),
        ("{}/task.py", "build_model = load_data = load_test = lambda: 1 / 0", "build_model() of"),
        ("{}-federation", "", "-federation' cannot be used (Not a directory); choose another"),
    ],
)
def test_a_mistake_in_an_app_is_one_sentence(
    path: str, text: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = tmp_path / tmp_path.name  # not digits: Python loads a package of one name only once
    new_app(app)
    place = default_folder(app) if "federation" in path else app / path.format(app.name)
    place.write_text(text)
    assert main(["flower", "up", str(app)]) == 2
    err = capsys.readouterr().err
    assert sentence.format(app=app) in err
    assert err.count("\n") == 1


def test_a_run_config_may_be_a_file(
    app: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config_file = tmp_path / "run.toml"
    config_file.write_text("rounds = 0")
    assert main(["flower", "up", str(app), "--run-config", str(config_file)]) == 2
    assert "tunefree: rounds = 0 is too small" in capsys.readouterr().err
    config_file.write_text("rounds")
    assert main(["flower", "up", str(app), "--run-config", str(config_file)]) == 2
    assert f"--run-config '{config_file}' is not valid TOML" in capsys.readouterr().err
    assert main(["flower", "up", str(app), "--run-config", "no.toml"]) == 2
    assert "--run-config 'no.toml' cannot be read (No such file" in capsys.readouterr().err


def test_a_run_config_file_gets_the_number_of_nodes_too(
    app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def check(app: Path, words: str, folder: Path) -> tuple[str, int]:
        seen.append(words)
        raise ConfigError("enough")

    monkeypatch.setattr("tunefree.node.local.up.check", check)
    (tmp_path / "run.toml").write_text('algorithm = "fedavg"\noption.eta = 0.1')
    command = ["flower", "up", str(app), "--nodes", "3", "--run-config", str(tmp_path / "run.toml")]
    assert main(command) == 2
    assert seen == ['clients=3 algorithm="fedavg" option.eta=0.1']


@pytest.mark.parametrize("kind", [[], ["--stock"]])
def test_a_missing_program_of_flower_is_named(
    kind: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    new_app(tmp_path / "digits")
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "other"))
    assert main(["flower", "up", str(tmp_path / "digits"), *kind]) == 2
    err = capsys.readouterr().err
    assert "Flower's program 'flower-superlink' is neither beside" in err
    assert "-m pip install 'tunefree[flower]'" in err
    assert not default_folder(tmp_path / "digits").exists()


def test_a_program_is_found_beside_python_and_then_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "other"))
    for folder in ("other", "bin"):
        (tmp_path / folder).mkdir()
        script = tmp_path / folder / "flower-superlink"
        script.touch(mode=0o755)
        assert command_line(["flower-superlink", "--insecure"]) == [str(script), "--insecure"]


def test_a_key_with_a_passphrase_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, maker = str(tmp_path / "key"), shutil.which("ssh-keygen")
    if maker is None:
        pytest.skip("needs ssh-keygen")
    subprocess.run([maker, "-q", "-t", "ecdsa", "-N", "secret", "-f", key], check=True)
    store = f"store='{tmp_path}'"
    assert main(["flower", *NODE.split(), "--key", key, "--node-config", store]) == 2
    assert f"--key '{key}' has a passphrase" in capsys.readouterr().err


def test_a_store_is_of_one_node_at_a_time(
    elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with FileLock(elsewhere / "empty" / "node.lock"):
        command = [*NODE.split(), "--insecure", "--node-config", 'store="empty"']
        assert main(["flower", *command]) == 2
    assert "store = 'empty' belongs to a node that is running" in capsys.readouterr().err


def test_flower_that_is_not_installed_is_named(
    app: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    for command in ("up digits", NODE, f"{REGISTER} key.pub"):
        monkeypatch.chdir(app.parent)
        assert main(["flower", *command.split()]) == 2
        assert "Flower is not installed; install it: pip install" in capsys.readouterr().err


def test_an_app_may_be_named_by_a_keyword(tmp_path: Path) -> None:
    files = new_app(tmp_path / "class")
    assert tmp_path / "class" / "class_" / "task.py" in files


def test_status_without_a_readable_live_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text, shown in (
        ("{", "unknown ('a.sqlite.live.json' cannot be read), round 0 of ?"),
        ('{"state": "running"}', "silent (its server has written nothing for 10 s), round 0 of ?"),
    ):
        (tmp_path / "a.sqlite.live.json").write_text(text)
        assert main(["flower", "status", str(tmp_path)]) == 0
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


class Client:
    """A SuperLink's answers to a server that pulls two replies, one of them never complete."""

    def __init__(self, replies: dict[str, Any], missing: set[str]) -> None:
        self.replies, self.missing = replies, missing

    def PullMessages(self, request: Any) -> Any:  # noqa: N802
        found = [self.replies.pop(n) for n in request.message_ids if n in self.replies]
        private = require()
        self.objects: dict[str, bytes] = getattr(self, "objects", {})
        for each in found:
            self.objects |= each.objects
        return SimpleNamespace(
            messages_list=[private.MessageProto.FromString(each.proto) for each in found],
            message_object_trees=[private.ObjectTree.FromString(each.tree) for each in found],
        )

    def PullObject(self, request: Any) -> Any:  # noqa: N802
        name = request.object_id
        there = name not in self.missing
        content = self.objects[name] if there else b""
        return SimpleNamespace(object_found=True, object_available=there, object_content=content)

    def ConfirmMessageReceived(self, request: Any) -> None:  # noqa: N802
        pass


def test_an_incomplete_reply_delays_no_other(tmp_path: Path) -> None:
    private = require()
    Nodes(tmp_path, [], {})  # sets the task identity of this process
    replies = {}
    for number in ("a", "b"):
        asked = Message(RecordDict(), 1, "train")
        asked.metadata.__dict__ |= {"_message_id": number, "_run_id": 1}
        replies[number] = private.deflate(Message(RecordDict(), reply_to=asked))
    missing = set(replies["a"].objects) - set(replies["b"].objects)
    grid = SimpleNamespace(
        _runtime_client=Client(replies, missing), node=None, run=SimpleNamespace(run_id=1)
    )
    transport = private.Replies(cast("Any", grid))
    numbers = ["a", "b"]
    assert [m.metadata.reply_to_message_id for m in transport.pull(numbers)] == ["b"]
    assert transport.pull(["a"]) == []
    grid._runtime_client.missing = set()
    assert [m.metadata.reply_to_message_id for m in transport.pull(["a"])] == ["a"]


def test_status_shows_who_is_connected_and_the_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tunefree.flower.transport.FRESH", 0.0)
    nodes = Nodes(tmp_path, range(3), config(tmp_path, rounds=4, evaluate_on_clients=True))
    nodes.places[2000] = 1
    with Live(Path(nodes.run_config["out"])) as live:
        run = federation(
            cast("Any", nodes), nodes.run_config, build_model, load_test(None), live=live
        )
        for row in run:
            if row["t"] == 1:
                del nodes.places[1002]
            live._write("running", "")
        assert main(["flower", "status", str(tmp_path)]) == 0
        told = capsys.readouterr().out
        assert "running, round 4 of 4, accuracy" in told
        assert "about 0 s left" in told
        assert "client 0, partition 0, node 1000: connected, accuracy" in told
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
    for row in federation(cast("Any", nodes), nodes.run_config, build_model):
        if row["t"] == 1:
            break
    seen: list[dict[str, Any]] = []

    def during_hello(node: int, reply: Message) -> Message:
        live._write(WAITING, "")
        seen.append(status(out))
        return reply

    nodes.change = during_hello
    with Live(out) as live:
        federation(cast("Any", nodes), nodes.run_config, build_model, live=live)
    assert (seen[0]["state"], seen[0]["run_state"]) == ("waiting for clients", "running")
    assert {one["state"] for one in seen[0]["clients"]} == {"not connected yet"}
    assert seen[0]["events"] == []


def test_status_shows_only_the_last_rounds_misses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunefree.flower.status.LAST", 2)
    nodes = Nodes(tmp_path, range(3), config(tmp_path, deadline=0.01))
    nodes.change = lambda node, reply: None if 10 < len(nodes.sent) < 14 else reply
    run = federation(cast("Any", nodes), nodes.run_config, build_model)
    assert sum(row["absent"] for row in run) > 0
    assert status(Path(nodes.run_config["out"]))["absent"] == []


@pytest.mark.parametrize(("age", "locked", "state"), [(4, False, "silent"), (4, True, "running")])
def test_status_of_a_run_whose_server_was_killed(
    age: float, locked: bool, state: str, tmp_path: Path
) -> None:
    nodes = Nodes(tmp_path, range(3), config(tmp_path))
    out = Path(nodes.run_config["out"])
    for row in federation(cast("Any", nodes), nodes.run_config, build_model):
        if row["t"] == 1:
            break
    page = {"state": "running", "at": time.time() - age}
    (tmp_path / "run.sqlite.live.json").write_text(json.dumps(page))
    with FileLock(f"{out}.lock") if locked else nullcontext():
        found = status(out)
    ended = "interrupted" if state == "silent" else "running"
    assert (found["state"], found["run_state"]) == (state, ended)


def test_a_run_that_was_stopped_from_outside_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with suppress(SystemExit), Live(tmp_path / "a.sqlite"):  # as Flower's handler of SIGTERM does
        raise SystemExit(0)
    assert main(["flower", "status", str(tmp_path)]) == 0
    assert "stopped (by `flwr stop` or a signal), round 0" in capsys.readouterr().out


def test_up_starts_nothing_for_a_finished_run(
    app: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = default_folder(app) / "superlink" / "federation.sqlite"
    out.parent.mkdir(parents=True)
    nodes = Nodes(
        app.parent, range(3), config(app.parent, algorithm="scaffold", rounds=2, out=str(out))
    )
    list(federation(cast("Any", nodes), nodes.run_config, build_model))
    monkeypatch.setattr("tunefree.node.local.up.check", lambda *_: (out.name, 2))
    assert main(["flower", "up", str(app)]) == 0
    told = capsys.readouterr()
    assert "has finished its 2 rounds already, so nothing was started" in told.err
    assert "done after round 2" in told.out


def test_the_command_that_resumes_names_all_options(app: Path) -> None:
    options = UpOptions(app, default_folder(app), 3, tls=True, run_config="rounds=60 seed=1")
    words = f"tunefree flower up {app} --nodes 3 --tls --run-config 'rounds=60 seed=1'"
    assert command_for(options) == words
    assert command_for(options._replace(folder=Path("x"))).endswith("--folder x " + words[-31:])


@pytest.mark.parametrize(
    ("failure", "code", "sentence"),
    [
        ("KnownKeyError", 0, "key.pub: already registered"),
        ("KnownKeyError", 1, "key.pub: not registered: it was unregistered before, which Flower"),
        ("RefusedError", 1, "key.pub: not registered: why"),
        ("UnreachableError", 1, "the SuperLink at 127.0.0.1:1 does not answer (why)"),
    ],
)
def test_register_reports_what_the_superlink_answers(
    failure: str,
    code: int,
    sentence: str,
    elsewhere: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    private = require()

    def answer(control: Any, key: Path) -> int:
        raise getattr(private, failure)("why")

    monkeypatch.setattr(private.Control, "register", answer)
    node = NodeInfo(public_key=private.load_public_key(Path("key.pub")))
    node.status = "unregistered" if code else "online"
    monkeypatch.setattr(private.Control, "nodes", lambda control: [node])
    assert main(["flower", *REGISTER.split(), "key.pub"]) == code
    assert sentence in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("why", "connected", "sentence"),
    [
        ("Server disconnected without sending a response.", False, "does only one side use TLS?"),
        ("Server disconnected without sending a response.", True, "does not answer (Server disc"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed", True, "give the CA that signed it with"),
        ("CERTIFICATE_VERIFY_FAILED: Hostname mismatch", False, "list this name or address in its"),
    ],
)
def test_why_a_superlink_cannot_be_reached(why: str, connected: bool, sentence: str) -> None:
    from tunefree.node.node import unreachable

    assert sentence in unreachable(require().UnreachableError(why), "host:1", connected)
