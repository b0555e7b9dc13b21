"""A run of an app in a federation on this machine: its log as it is written, and how it ended."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefree.errors import FleetError
from tunefree.flower.log import Log
from tunefree.node.local.processes import STOP, end_group

if TYPE_CHECKING:
    from tunefree.node.control import Control

LOG = Log()
SKIPPED = (  # lines of Flower's that repeat what ours report
    "Start `flwr-serverapp`",
    "Successfully installed",
    "Exit Code: 201",
    "An unhandled exception occurred in the ServerApp",
    "For more information, visit",
)


class LocalRun:
    """A run started through the SuperLink's control API."""

    def __init__(
        self,
        control: Control,
        app: Path,
        config: Mapping[str, Any],
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        """`on_line` gets each line of the log; without it, lines go to standard error."""
        from tunefree.node.connection import RefusedError, UnreachableError

        self._control, self._errors = control, (RefusedError, UnreachableError)
        self._on_line = on_line or show
        try:
            self.id = control.start(app.resolve(), dict(config))
        except self._errors as error:
            raise FleetError(f"the SuperLink did not start a run of '{app}': {error}") from error
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        with suppress(*self._errors):
            for line in self._control.log(self.id):
                self._on_line(line)

    def over(self) -> bool:
        """Whether the run or the SuperLink has ended."""
        return not self._thread.is_alive()

    def end(self) -> str:
        """Stop the run if it has not ended; return why it failed, or an empty string."""
        with closing(self._control) as control, suppress(*self._errors):
            if not self.over():
                control.stop(self.id)
                self._thread.join(STOP)
            state = control.state(self.id)
            return "" if state.sub_status == "completed" else state.details or state.status
        return "the SuperLink is gone"


class StockRun:
    """`flwr run`, for versions of Flower that our own code was not tested with."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def over(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> str:
        end_group(self._process, signal.SIGINT)
        try:
            code = self._process.wait(STOP)
        except subprocess.TimeoutExpired:
            end_group(self._process, signal.SIGKILL)
            code = self._process.wait()
        return "" if code == 0 else f"flwr run ended with {code}"


def show(line: str) -> None:
    """Print a line of the server's log, with the time instead of Flower's level."""
    text = re.sub(r"^(INFO|WARNING|ERROR) +: +", "", line).strip()
    if text and not text.startswith(SKIPPED):
        LOG(text)
