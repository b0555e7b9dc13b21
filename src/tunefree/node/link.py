"""A node's connection to its SuperLink."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path

from flwr.common.config import get_fused_config_from_fab
from flwr.common.serde import fab_from_proto, run_from_proto
from flwr.proto.fab_pb2 import GetFabRequest
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ObjectTree,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.proto.node_pb2 import Node
from flwr.proto.run_pb2 import GetRunRequest
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from tunefree.errors import ConfigError
from tunefree.node.apps import App, hashes_in, install
from tunefree.node.connection import RefusedError, RunOverError, connect, plain_errors
from tunefree.node.keys import load_key, public_bytes
from tunefree.node.messages import Announced, Deflated, announced

HEARTBEAT = 15.0  # seconds; a node that was silent for two of them counts as disconnected
BACK_OFF, LONGEST_BACK_OFF = 0.03, 0.5  # seconds: a message is announced before it is complete
COMPLETE = 60.0  # seconds until an announced message must be complete


class Link:
    """A node's connection to its SuperLink; every request is signed with the node's key."""

    def __init__(self, address: str, insecure: bool, ca: Path | None, key: Path) -> None:
        private = load_key(key)
        self._public = public_bytes(private.public_key())
        signing = [NodeAuthHttpInterceptor(private, private.public_key())]
        self._client = connect(FleetHttpClient, "SuperNode", address, insecure, ca, signing)
        self._node = Node()

    def register(self) -> None:
        """Register this node's own key; only a SuperLink without node keys allows it."""
        with plain_errors():
            self._client.RegisterNode(RegisterNodeFleetRequest(public_key=self._public))

    def activate(self) -> int:
        request = ActivateNodeRequest(public_key=self._public, heartbeat_interval=HEARTBEAT)
        with plain_errors():
            self._node = Node(node_id=self._client.ActivateNode(request).node_id)
        return int(self._node.node_id)

    def deactivate(self, node: int) -> None:
        with plain_errors():
            self._client.DeactivateNode(DeactivateNodeRequest(node_id=node))

    def heartbeat(self) -> None:
        request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=HEARTBEAT)
        with plain_errors():
            self._client.SendNodeHeartbeat(request)

    def pull(self) -> Announced | None:
        with plain_errors():
            response = self._client.PullMessages(PullMessagesRequest(node=self._node))
        if not response.messages_list:
            return None
        return announced(response.messages_list[0], response.message_object_trees[0])

    def fetch(self, message: Announced) -> dict[str, bytes]:
        """All objects of a message, which the SuperLink may then delete."""
        run, end = message.run, time.monotonic() + COMPLETE
        found = {name: self._object(run, name, end) for name in message.objects}
        request = ConfirmMessageReceivedRequest(
            node=self._node, run_id=run, message_object_id=message.id
        )
        with plain_errors():
            self._client.ConfirmMessageReceived(request)
        return found

    def _object(self, run: int, name: str, end: float) -> bytes:
        """An object, once it is complete."""
        request, wait = PullObjectRequest(node=self._node, run_id=run, object_id=name), BACK_OFF
        while True:
            with plain_errors():
                response = self._client.PullObject(request)
            if response.object_available:
                return bytes(response.object_content)
            if not response.object_found or time.monotonic() > end:
                raise RefusedError("a message never became complete")
            time.sleep(wait)
            wait = min(2 * wait, LONGEST_BACK_OFF)

    def push(self, run: int, reply: Deflated, seconds: float) -> None:
        """Send a reply; Flower records how long the work took."""
        announcement = PushMessagesRequest(
            node=self._node,
            messages_list=[MessageProto.FromString(reply.proto)],
            message_object_trees=[ObjectTree.FromString(reply.tree)],
            clientapp_runtime_list=[seconds],
        )
        with plain_errors():
            response = self._client.PushMessages(announcement)
            for name in response.objects_to_push:
                self._client.PushObject(
                    PushObjectRequest(
                        node=self._node,
                        run_id=run,
                        session_id=response.session_id,
                        object_id=name,
                        object_content=reply.objects[name],
                    )
                )

    def running(self, run: int) -> bool:
        """Whether a run has not ended yet."""
        try:
            with plain_errors():
                self._client.GetRun(GetRunRequest(node=self._node, run_id=run))
        except (RunOverError, RefusedError):
            return False
        return True

    def install(self, run: int, approved: Sequence[str] = ()) -> App:
        """Download a run's app, and install it as Flower's own node would.

        `approved`: only an app with one of these hashes, or a hash in one of these files.
        """
        with plain_errors():
            response = self._client.GetRun(GetRunRequest(node=self._node, run_id=run))
            info = run_from_proto(response.run)
            if approved and info.fab_hash not in hashes_in(approved):
                raise ConfigError(
                    f"the app {info.fab_id} with the hash {info.fab_hash} is not approved on this "
                    "node; its operator approves it with --approve and this hash"
                )
            request = GetFabRequest(node=self._node, hash_str=info.fab_hash, run_id=run)
            fab = fab_from_proto(self._client.GetFab(request).fab)
        if hashlib.sha256(fab.content).hexdigest() != info.fab_hash:
            raise RefusedError("the app is not the one that the run names")
        install(fab.content)
        config = get_fused_config_from_fab(fab.content, info)
        return App(info.fab_id, info.fab_version, info.fab_hash, dict(config), info.series_id)

    def close(self) -> None:
        self._client.close()
