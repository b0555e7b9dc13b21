"""What `flwr` does with a SuperLink: register nodes, run an app, show its log."""

from __future__ import annotations

import hashlib
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

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

from tunefree.errors import FleetError
from tunefree.flower.log import Log, as_json, stamped, without_colours
from tunefree.node.apps import bundle
from tunefree.node.connection import RefusedError, UnreachableError, connect, plain_errors
from tunefree.node.keys import load_public_key

UNREGISTERED = "unregistered"  # the status of a node whose key was revoked
FAILURES = (RefusedError, UnreachableError)
LOG = Log()
STOP = 10.0  # seconds for a run to end after it was stopped
SKIPPED = (  # lines of Flower's that repeat what ours report
    "Start `flwr-serverapp`",
    "Successfully installed",
    "Exit Code: 201",
    "An unhandled exception occurred in the ServerApp",
    "For more information, visit",
)


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

    def failure(self, run: int) -> str:
        """Why a run that has ended failed; empty if it did not."""
        with plain_errors():
            found = self._client.ListRuns(ListRunsRequest(run_id=run)).run_dict[run].status
        return "" if found.sub_status == "completed" else found.details or found.status

    def stop(self, run: int) -> None:
        with plain_errors():
            self._client.StopRun(StopRunRequest(run_id=run))

    def close(self) -> None:
        self._client.close()


class LocalRun:
    """A run of an app, started through the SuperLink's control API."""

    def __init__(
        self,
        control: Control,
        app: Path,
        config: Mapping[str, Any],
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        """`on_line` gets each line of the log; without it, lines go to standard error."""
        self._control, self._on_line = control, on_line or show
        try:
            self.id = control.start(app.resolve(), dict(config))
        except FAILURES as error:
            raise FleetError(f"the SuperLink did not start a run of '{app}': {error}") from error
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        with suppress(*FAILURES):
            for line in self._control.log(self.id):
                self._on_line(line)

    def over(self) -> bool:
        """Whether the run or the SuperLink has ended."""
        return not self._thread.is_alive()

    def end(self) -> str:
        """Stop the run if it has not ended; return why it failed, or an empty string."""
        with closing(self._control) as control, suppress(*FAILURES):
            if not self.over():
                control.stop(self.id)
                self._thread.join(STOP)
            return control.failure(self.id)
        return "the SuperLink is gone"


def show(line: str) -> None:
    """Print a line of the server's log, with the time instead of Flower's level."""
    if as_json():
        print(stamped(line), file=sys.stderr, flush=True)  # noqa: T201
        return
    text = re.sub(r"^(INFO|WARNING|ERROR) +: +", "", line).strip()
    if text and not text.startswith(SKIPPED):
        LOG(text)
