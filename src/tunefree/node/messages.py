"""Flower's messages and the objects that they are sent as."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from flwr.app import Error, Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import ErrorCode
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents


class Announced(NamedTuple):
    """A message that was announced: its metadata, and the names of its objects."""

    run: int
    id: str
    kind: str
    proto: bytes
    objects: tuple[str, ...]


class Deflated(NamedTuple):
    """A message as it is sent over the wire."""

    proto: bytes
    tree: bytes
    objects: dict[str, bytes]


def announced(proto: Any, tree: Any) -> Announced:
    about = proto.metadata
    names = tuple(dict.fromkeys(each.object_id for each in iterate_object_tree(tree)))
    return Announced(
        about.run_id, tree.object_id, about.message_type, proto.SerializeToString(), names
    )


def inflate(number: str, objects: dict[str, bytes]) -> Message:
    """A message from its objects."""
    message = cast("Message", inflate_object_from_contents(number, dict(objects)))
    set_number(message, number)
    return message


def deflate(message: Message) -> Deflated:
    set_number(message, message.object_id)
    with no_object_id_recompute():
        tree = get_object_tree(message)
        nested = get_all_nested_objects(message)
        objects = {name: each.deflate() for name, each in nested.items()}
    bare = remove_content_from_message(message) if message.has_content() else message
    proto = message_to_proto(bare)
    return Deflated(proto.SerializeToString(), tree.SerializeToString(), objects)


def set_number(message: Message, number: str) -> None:
    """Set a message's id, in Flower's own way: its metadata has no setter for it."""
    message.metadata.__dict__["_message_id"] = number


def failure(proto: bytes, why: str) -> Deflated:
    """The reply that reports that the work on a message failed, and why."""
    return deflate(failed(message_from_proto(MessageProto.FromString(proto)), why))


def failed(asked: Message, why: str) -> Message:
    return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, why), reply_to=asked)
