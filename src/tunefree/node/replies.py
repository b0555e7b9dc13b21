"""A server's nodes and their replies, without Flower's waits for replies that are incomplete."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from flwr.app import Error, Message, Metadata
from flwr.app.message import make_message
from flwr.common.constant import ErrorCode
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.supercore.constant import SYSTEM_MESSAGE_TYPE

from tunefree.node.messages import Announced, announced, inflate, unpacked

if TYPE_CHECKING:
    from flwr.serverapp import Grid
    from flwr.superlink.grid import HttpGrid  # a third of a node's memory if it were loaded there

TOO_LARGE = "its upload is larger than any of this method"


class Replies:
    """The nodes' replies, each as soon as it is complete: none waits for another."""

    def __init__(self, grid: HttpGrid) -> None:
        self._grid = grid
        # replies that are not complete yet, by the message that they answer
        self._partial: dict[str, tuple[Announced, dict[str, bytes]]] = {}

    def nodes(self) -> dict[int, str]:
        """The nodes that are connected, and since when."""
        return {node.node_id: node.last_activated_at for node in self._grid.get_nodes()}

    def pull(self, numbers: Collection[str], most: int) -> list[Message]:
        """The complete replies to these messages; an error for one that was interrupted, or that
        would be longer than `most` bytes, however short it is on the wire.
        """
        client, node = self._grid._runtime_client, self._grid.node  # its own pull waits for all
        run = self._grid.run.run_id
        self._partial = {n: each for n, each in self._partial.items() if n in numbers}
        if asked := [number for number in numbers if number not in self._partial]:
            response = client.PullMessages(PullAppMessagesRequest(message_ids=asked))
            found = zip(response.messages_list, response.message_object_trees, strict=True)
            for proto, tree in found:
                self._partial[proto.metadata.reply_to_message_id] = (announced(proto, tree), {})
        come = []
        for number, (reply, objects) in list(self._partial.items()):
            for name in [name for name in reply.objects if name not in objects]:
                request = PullObjectRequest(node=node, run_id=run, object_id=name)
                response = client.PullObject(request)
                if not response.object_available:
                    break
                objects[name] = response.object_content
                if sum(map(len, objects.values())) > 2 * most:
                    break
            if len(objects) == len(reply.objects):
                del self._partial[number]
                client.ConfirmMessageReceived(
                    ConfirmMessageReceivedRequest(node=node, run_id=run, message_object_id=reply.id)
                )
                fits = unpacked(objects) <= 2 * most  # the chunks, and what they are put into
                large = no_reply(number, run, node.node_id, TOO_LARGE)
                come.append(inflate(reply.id, objects) if fits else large)
            elif response.object_available or not response.object_found:
                del self._partial[number]
                why = TOO_LARGE if response.object_available else "its upload was interrupted"
                come.append(no_reply(number, run, node.node_id, why))
        return come


def no_reply(number: str, run: int, server: int, why: str) -> Message:
    """The error that replaces a reply that cannot be used."""
    about = Metadata(run, "", server, server, number, "", time.time(), 0, SYSTEM_MESSAGE_TYPE)
    error = Error(ErrorCode.MESSAGE_UNAVAILABLE, why)
    return make_message(about, error=error)


def of_grid(grid: Grid) -> Replies | None:
    from flwr.superlink.grid import HttpGrid

    return Replies(grid) if isinstance(grid, HttpGrid) else None
