"""`tunefree flower` without a federation: what is refused before a start, and what travels."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("flwr")

from flwr.app import Message, RecordDict

from tests.flower.nodes import Nodes, build_model, config, load_test
from tunefree.cli import main
from tunefree.errors import ConfigError
from tunefree.flower.federation import federation
from tunefree.flower.live import Live
from tunefree.flower.local.certificates import node_key
from tunefree.flower.local.up import beside
from tunefree.flower.new_app import new_app
from tunefree.flower.pace import Pace
from tunefree.flower.versions import require


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An app, and nothing that could be started."""
    monkeypatch.setattr("tunefree.flower.local.up.Local", None)
    new_app(tmp_path / "digits")
    return tmp_path / "digits"


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--run-config", "algorithm='padamfd'"], "did you mean 'padamfed'?"),
        (["--run-config", "rounds=0"], "system.T = 0 is too small"),
        (["--run-config", "rounds 5"], "--run-config 'clients=4 rounds 5' cannot be read"),
        (["--run-config", "local-epochs=2"], "--run-config local-epochs is not among the keys"),
        (["--folder", "digits/here"], "lies inside the app"),
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
    assert not beside(app).exists()


def test_no_key_certificate_or_run_file_travels_in_a_bundle(app: Path) -> None:
    for name in ("node.key", "certificates/ca.crt", "run.sqlite", "keys/node0", "keys/a.py"):
        (app / name).parent.mkdir(exist_ok=True)
        (app / name).write_text("secret")
    node_key(app / "keys" / "node1")
    names = zipfile.ZipFile(io.BytesIO(require().bundle(app))).namelist()
    code = [f"digits/{name}.py" for name in ("__init__", "client_app", "server_app", "task")]
    assert sorted(names) == [".info/CONTENT", *code, "pyproject.toml"]
    assert not beside(app).is_relative_to(app)


def test_an_old_federation_inside_an_app_is_named(
    app: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (app / "federation" / "superlink").mkdir(parents=True)
    assert main(["flower", "up", str(app)]) == 2
    assert f"mv {app / 'federation'} {beside(app)}" in capsys.readouterr().err


def test_another_version_of_flower_is_refused_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "1.50.0")
    assert main(["flower", "node", "--superlink", "127.0.0.1:1", "--insecure"]) == 2
    told = capsys.readouterr().err
    assert "flwr = 1.50.0 has not been tried with tunefree's node, only 1.41 and 1.42" in told
    assert "flower-supernode" in told


def test_a_node_without_what_it_needs_is_refused(tmp_path: Path) -> None:
    private = require()
    (tmp_path / "key").write_text("-----BEGIN PRIVATE KEY-----")
    with pytest.raises(ConfigError, match="is no elliptic key in OpenSSH's format"):
        private.load_key(tmp_path / "key")
    with pytest.raises(ConfigError, match="cannot be read"):
        private.read_certificates(tmp_path / "ca.crt")


def test_looks_become_rarer_while_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
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
    """A SuperLink's answers to a server that pulls two replies, of which one is never whole."""

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


def test_a_reply_that_is_never_whole_holds_up_no_other(tmp_path: Path) -> None:
    private = require()
    Nodes(tmp_path, [], {})  # sets whose task this process has
    replies = {}
    for number in ("a", "b"):
        asked = Message(RecordDict(), 1, "train")
        asked.metadata.__dict__ |= {"_message_id": number, "_run_id": 1}
        replies[number] = private.deflate(Message(RecordDict(), reply_to=asked))
    missing = set(replies["a"].objects) - set(replies["b"].objects)
    grid = SimpleNamespace(
        _runtime_client=Client(replies, missing), node=None, run=SimpleNamespace(run_id=1)
    )
    post = private.Replies(cast("Any", grid))
    numbers = ["a", "b"]
    assert [m.metadata.reply_to_message_id for m in post.come(numbers)] == ["b"]
    assert post.come(["a"]) == []
    grid._runtime_client.missing = set()
    assert [m.metadata.reply_to_message_id for m in post.come(["a"])] == ["a"]


def test_status_tells_who_is_there_and_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tunefree.flower.post.FRESH", 0.0)
    nodes = Nodes(tmp_path, range(3), config(tmp_path, rounds=4, evaluate_on_clients=True))
    nodes.places[2000] = 1
    with Live(Path(nodes.run_config["out"])) as live:
        run = federation(
            cast("Any", nodes), nodes.run_config, build_model, load_test(None), live=live
        )
        for row in run:
            if row["t"] == 1:
                del nodes.places[1002]
    assert main(["flower", "status", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "ended, round 4 of 4, accuracy" in told
    assert "client 0, partition 0, node 1000: connected, accuracy" in told
    assert "client 2, partition 2, node -: gone" in told
    assert "node 2000 is left out: partition 1 is connected already" in told
    assert "round 3, client 2: it is not connected" in told
