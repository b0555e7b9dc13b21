"""Flower's messages, the objects that they are sent as, and frames between a node and its worker.

A frame is a few words as JSON, and bytes; no pickle.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, cast

from flwr.app import Array, Error, Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import ErrorCode
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_body,
    get_object_head_values_from_object_content,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents


class Announced(NamedTuple):
    """A message that was announced: its metadata, and the names of its objects."""

    run: int
    id: str
    proto: bytes
    objects: tuple[str, ...]


class Deflated(NamedTuple):
    """A message as it is sent over the wire."""

    proto: bytes
    tree: bytes
    objects: dict[str, bytes]


def announced(proto: Any, tree: Any) -> Announced:
    names = tuple(dict.fromkeys(each.object_id for each in iterate_object_tree(tree)))
    return Announced(proto.metadata.run_id, tree.object_id, proto.SerializeToString(), names)


def unpacked(objects: Mapping[str, bytes]) -> int:
    """The bytes of a message once inflated: an array may name the same chunk many times."""
    total = 0
    for content in objects.values():
        kind, children, _ = get_object_head_values_from_object_content(content)
        total += len(content)
        if kind == Array.__name__:
            chunks = json.loads(get_object_body(content, Array))["arraychunk_ids"]
            total += sum(len(objects[children[place]]) for place in chunks)
    return total


def inflate(number: str, objects: Mapping[str, bytes]) -> Message:
    """A message from its objects, which do not contain its number."""
    found = cast("Message", inflate_object_from_contents(number, dict(objects)))
    message = message_from_proto(bare(found, number))
    if found.has_content():
        message.content = found.content
    return message


def deflate(message: Message) -> Deflated:
    """A message as objects; its number is that of the outermost one."""
    proto = bare(message, message.object_id)
    with no_object_id_recompute():
        tree = get_object_tree(message)
        nested = get_all_nested_objects(message)
        objects = {name: each.deflate() for name, each in nested.items()}
    return Deflated(proto.SerializeToString(), tree.SerializeToString(), objects)


def bare(message: Message, number: str) -> MessageProto:
    """A message's metadata, with its number, and its error if it has one."""
    proto = message_to_proto(remove_content_from_message(message))
    proto.metadata.message_id = number
    return proto


def failure(proto: bytes, why: str) -> Deflated:
    """The reply that reports that the work on a message failed, and why."""
    return deflate(failed(message_from_proto(MessageProto.FromString(proto)), why))


def failed(asked: Message, why: str) -> Message:
    return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, why), reply_to=asked)


def write(to: Connection, words: Mapping[str, Any], parts: Mapping[str, bytes]) -> None:
    """Send a frame: words, and bytes by name."""
    to.send_bytes(json.dumps([words, list(parts)]).encode())
    for part in parts.values():
        to.send_bytes(part)


def read(source: Connection) -> tuple[dict[str, Any], dict[str, bytes]] | None:
    """The next frame, or None if the other side has closed the connection."""
    try:
        words, names = json.loads(source.recv_bytes())
        return words, {name: source.recv_bytes() for name in names}
    except (EOFError, ConnectionError):
        return None
