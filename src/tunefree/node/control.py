"""What `flwr` does with a SuperLink: register nodes, start a run, read its log."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from flwr.common.serde import fab_to_proto, user_config_to_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    StreamLogsRequest,
)
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab

from tunefree.flower.log import without_colours
from tunefree.node.apps import bundle
from tunefree.node.connection import RefusedError, connect, plain_errors
from tunefree.node.keys import load_public_key

UNREGISTERED = "unregistered"  # the status of a node whose key was revoked


class RunState(NamedTuple):
    """The state of a run as Flower reports it."""

    status: str  # pending, starting, running, finished
    sub_status: str  # of a finished one: completed, failed, stopped
    details: str


class Control:
    """A connection to a SuperLink's control API."""

    def __init__(self, address: str, insecure: bool, ca: Path | None) -> None:
        self._client = connect(ControlHttpClient, "flwr CLI", address, insecure, ca)

    def register(self, public_key: Path) -> int:
        """Register a node's key; returns the node's number."""
        request = RegisterNodeRequest(public_key=load_public_key(public_key))
        with plain_errors():
            return int(self._client.RegisterNode(request).node_id)

    def registered(self, public_key: Path) -> bool:
        """Whether a node with this key is registered now."""
        key = load_public_key(public_key)
        return any(node.public_key == key and node.status != UNREGISTERED for node in self.nodes())

    def nodes(self) -> list[Any]:
        with plain_errors():
            return list(self._client.ListNodes(ListNodesRequest()).nodes_info)

    def start(self, app: Path, run_config: dict[str, Any]) -> int:
        """Bundle an app and start a run of it; returns the run's number."""
        content = bundle(app)
        fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
        request = StartRunRequest(
            fab=fab_to_proto(fab), override_config=user_config_to_proto(run_config)
        )
        with plain_errors():
            response = self._client.StartRun(request)
        if not response.HasField("run_id"):
            raise RefusedError("the SuperLink started no run")
        return int(response.run_id)

    def log(self, run: int) -> Iterator[str]:
        """A run's log, line by line, until the run ends."""
        rest = ""
        with plain_errors():
            for part in self._client.StreamLogs(StreamLogsRequest(run_id=run, after_timestamp=0.0)):
                *lines, rest = (rest + part.log_output).split("\n")
                yield from (without_colours(line) for line in lines)
        if rest:
            yield without_colours(rest)

    def state(self, run: int) -> RunState:
        with plain_errors():
            found = self._client.ListRuns(ListRunsRequest(run_id=run)).run_dict[run].status
        return RunState(found.status, found.sub_status, found.details)

    def stop(self, run: int) -> None:
        with plain_errors():
            self._client.StopRun(StopRunRequest(run_id=run))

    def close(self) -> None:
        self._client.close()
