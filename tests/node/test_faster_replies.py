"""Which way the server's replies come: Flower's public API, or a faster one that was offered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.node_pb2 import Node
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid

from tunefree.errors import ConfigError
from tunefree.flower import transport
from tunefree.flower.transport import Sent, Transport
from tunefree.node import faster
from tunefree.node.messages import deflate
from tunefree.node.replies import Replies


class Grid:
    """Flower's public API, with one node."""

    def get_node_ids(self) -> list[int]:
        return [7]

    def push_messages(self, messages: list[Message]) -> list[str | None]:
        return ["a", *([None] * (len(messages) - 1))]

    def pull_messages(self, numbers: list[str]) -> list[Any]:
        return [reply_to(number, "reply") for number in numbers]


def reply_to(number: str, kind: str) -> Any:
    return SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id=number), kind=kind)


class Sessions:
    """A faster way, which knows since when a node has been connected."""

    def __init__(self, grid: object) -> None:
        self.since = "noon"

    def nodes(self) -> dict[int, str]:
        return {7: self.since}

    def pull(self, numbers: list[str], most: int) -> list[Any]:
        return [reply_to(number, "fast reply") for number in numbers]


def offered(monkeypatch: pytest.MonkeyPatch, offer: Any) -> Any:
    """The transport where a package makes this offer."""
    found = [SimpleNamespace(load=lambda: offer)]
    monkeypatch.setattr(transport, "entry_points", lambda group: found if offer else [])
    monkeypatch.setattr(transport, "FRESH", 0.0)
    return Transport(cast("Any", Grid()))


def sent_by(ours: Transport, nodes: int) -> dict[str, Sent]:
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # as a ServerApp
    return ours.send({node: RecordDict() for node in range(7, 7 + nodes)}, "query")


def taken(ours: Transport, waiting: dict[str, str]) -> list[tuple[str, str]]:
    return [(each, cast("Any", reply).kind) for each, reply in ours.take(waiting)]


def test_without_an_offer_the_public_api_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = offered(monkeypatch, None)
    sent = sent_by(ours, nodes=2)  # of which the grid takes one
    assert list(sent) == ["a"]
    assert (sent["a"].node, ours.gone(sent["a"])) == (7, False)
    waiting = {"a": "mine"}
    assert taken(ours, waiting) == [("mine", "reply")]
    assert waiting == {}


def test_an_offer_is_used_and_a_node_that_reconnected_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = offered(monkeypatch, Sessions)
    sent = sent_by(ours, nodes=1)["a"]
    assert not ours.gone(sent)
    assert taken(ours, {"a": "mine"}) == [("mine", "fast reply")]
    cast("Any", ours)._faster.since = "one o'clock"
    assert ours.gone(sent)


def test_an_offer_for_another_flower_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuses(grid: object) -> None:
        raise ConfigError("flwr = 1.99.0 was not tested")

    ours = offered(monkeypatch, refuses)
    assert taken(ours, {"a": "mine"}) == [("mine", "reply")]
    assert caplog.messages == [
        "flwr = 1.99.0 was not tested; replies come through Flower's public API, which is slower"
    ]


def test_our_node_offers_it_for_deployed_grids_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert faster(cast("Any", Grid())) is None
    assert isinstance(faster(HttpGrid(token="secret")), Replies)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "1.50.0")
    with pytest.raises(ConfigError, match="only 1.41 and 1.42$"):
        faster(cast("Any", Grid()))


class Client:
    """A SuperLink's answers to a server that pulls two replies, one of them never complete."""

    def __init__(self, replies: dict[str, Any], missing: set[str]) -> None:
        self.replies, self.missing, self.given_up = replies, missing, False

    def PullMessages(self, request: Any) -> Any:  # noqa: N802
        found = [self.replies.pop(n) for n in request.message_ids if n in self.replies]
        self.objects: dict[str, bytes] = getattr(self, "objects", {})
        for each in found:
            self.objects |= each.objects
        return SimpleNamespace(
            messages_list=[MessageProto.FromString(each.proto) for each in found],
            message_object_trees=[ObjectTree.FromString(each.tree) for each in found],
        )

    def PullObject(self, request: Any) -> Any:  # noqa: N802
        name = request.object_id
        there = name not in self.missing
        content = self.objects[name] if there else b""
        found = there or not self.given_up
        return SimpleNamespace(object_found=found, object_available=there, object_content=content)

    def ConfirmMessageReceived(self, request: Any) -> None:  # noqa: N802
        pass


def one_of_two_pulled() -> tuple[Replies, Client]:
    """Replies of which b has come, and a is incomplete."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    replies = {}
    for number in ("a", "b"):
        asked = Message(RecordDict(), 1, "train")
        asked.metadata.__dict__ |= {"_message_id": number, "_run_id": 1}
        replies[number] = deflate(Message(RecordDict(), reply_to=asked))
    missing = set(replies["a"].objects) - set(replies["b"].objects)
    grid = SimpleNamespace(
        _runtime_client=Client(replies, missing), node=Node(), run=SimpleNamespace(run_id=1)
    )
    transport = Replies(cast("Any", grid))
    numbers = ["a", "b"]
    assert [m.metadata.reply_to_message_id for m in transport.pull(numbers, 2**20)] == ["b"]
    assert transport.pull(["a"], 2**20) == []
    return transport, grid._runtime_client


def test_an_incomplete_reply_delays_no_other() -> None:
    transport, client = one_of_two_pulled()
    client.missing = set()
    (late,) = transport.pull(["a"], 2**20)
    assert (late.metadata.reply_to_message_id, late.has_error()) == ("a", False)


def test_an_interrupted_reply_is_an_error() -> None:
    transport, client = one_of_two_pulled()
    client.given_up = True
    (lost,) = transport.pull(["a"], 2**20)
    assert lost.metadata.reply_to_message_id == "a"
    assert lost.error.reason == "its upload was interrupted"
    assert transport.pull([], 2**20) == []


def bomb(size: int, times: int) -> Any:
    """A reply whose one chunk is named many times by its array."""
    asked = Message(RecordDict(), 1, "train")
    asked.metadata.__dict__ |= {"_message_id": "a", "_run_id": 1}
    array = Array("uint8", (size,), "tunefree", bytes(range(256)) * (size // 256))
    reply = deflate(Message(RecordDict({"message": ArrayRecord({"bytes": array})}), reply_to=asked))
    objects = {
        name: content.replace(
            b'"arraychunk_ids": [0]', b'"arraychunk_ids": %s' % str([0] * times).encode()
        )
        for name, content in reply.objects.items()
    }
    return reply._replace(objects=objects)


@pytest.mark.parametrize(("times", "most"), [(1, 2**17), (20, 2**17), (1, 2**14)])
def test_a_reply_is_measured_before_it_is_unpacked(times: int, most: int) -> None:
    sent = bomb(2**16, times)
    grid = SimpleNamespace(
        _runtime_client=Client({"a": sent}, set()), node=Node(), run=SimpleNamespace(run_id=1)
    )
    (reply,) = Replies(cast("Any", grid)).pull(["a"], most)
    if times == 1 and most > 2**16:
        assert not reply.has_error()
    else:
        assert reply.error.reason == "its upload is larger than any of this method"
