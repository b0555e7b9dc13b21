"""`tunefree flower` without a federation: what is refused before a start, and what is bundled."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

import torch
from filelock import FileLock
from flwr.proto.node_pb2 import NodeInfo

import tunefree
from tunefree.cli import main
from tunefree.errors import ConfigError
from tunefree.flower.new_app import new_app
from tunefree.node import apps, connection
from tunefree.node.connection import UnreachableError, read_certificates, unreachable
from tunefree.node.control import Control
from tunefree.node.keys import load_key, load_public_key, node_key
from tunefree.node.local.processes import command_line
from tunefree.node.local.up import UpOptions, command_for, default_folder


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
        (["--run-config", "rounds 5"], "--run-config 'rounds 5' cannot be read"),
        (["--run-config", "local_epochs=2"], "--run-config local_epochs is not among the keys"),
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
    names = zipfile.ZipFile(io.BytesIO(apps.bundle(app))).namelist()
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
    (tmp_path / "key").write_text("-----BEGIN PRIVATE KEY-----")
    with pytest.raises(ConfigError, match="is not an elliptic-curve key in OpenSSH's format"):
        load_key(tmp_path / "key")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_certificates(tmp_path / "ca.crt")


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with an empty file, an empty folder and a node's key."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    (tmp_path / "config.toml").touch()
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
        (f"{NODE} --insecure --approve 12ab", "--approve '12ab' is neither a hash, which"),
        ("register --superlink ours key.pub", "'ours' is neither HOST:PORT nor a connection"),
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
        (
            "{}/server_app.py",
            "",
            "fails (AttributeError: module '{app.name}.server_app' has no",
        ),
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
    seen: list[dict[str, Any]] = []

    def check(app: Path, config: dict[str, Any], folder: Path) -> int:
        seen.append(config)
        raise ConfigError("enough")

    monkeypatch.setattr("tunefree.node.local.up.check", check)
    (tmp_path / "run.toml").write_text('algorithm = "fedavg"\nrounds = 7')
    command = ["flower", "up", str(app), "--nodes", "3", "--run-config", str(tmp_path / "run.toml")]
    assert main(command) == 2
    assert {key: seen[0][key] for key in ("clients", "algorithm", "rounds", "wait")} == {
        "clients": 3,
        "algorithm": "fedavg",
        "rounds": 7,
        "wait": 300.0,
    }


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


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    node_key(tmp_path / "key")
    load_key(tmp_path / "key")
    for mode in (0o640, 0o604):
        (tmp_path / "key").chmod(mode)
        with pytest.raises(ConfigError, match="can be read by others; run: chmod 600 "):
            load_key(tmp_path / "key")


def test_hashes_are_given_or_in_a_file(
    app: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["flower", "hash", str(app)]) == 0
    found = capsys.readouterr().out.strip()
    (app / "digits" / "task.py").write_text("changed = True\n")
    assert main(["flower", "hash", str(app), "--format", "json"]) == 0
    changed = json.loads(capsys.readouterr().out)["hash"]
    assert changed != found
    (tmp_path / "approved").write_text(f"# ours\n{found}  digits 1.0\n\n{found[:20]}\n")
    assert apps.hashes_in([str(tmp_path / "approved")]) == {found}
    assert apps.hashes_in([changed, str(tmp_path / "approved")]) == {found, changed}


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


def test_up_starts_nothing_for_a_finished_run(
    app: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = default_folder(app) / "superlink" / "federation.sqlite"
    out.parent.mkdir(parents=True)
    clients = [(torch.randn(8, 3), torch.randn(8)) for _ in range(2)]
    tunefree.train(torch.nn.Linear(3, 1), clients, rounds=2, out=out, progress=False)
    monkeypatch.setattr("tunefree.node.local.up.check", lambda *_: 2)
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

    def answer(control: Any, key: Path) -> int:
        raise getattr(connection, failure)("why")

    monkeypatch.setattr(Control, "register", answer)
    node = NodeInfo(public_key=load_public_key(Path("key.pub")))
    node.status = "unregistered" if code else "online"
    monkeypatch.setattr(Control, "nodes", lambda control: [node])
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
    assert sentence in unreachable(UnreachableError(why), "host:1", connected)
