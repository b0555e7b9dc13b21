"""A run of an app in a federation on this machine: its log as it comes, and how it ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefree.errors import FleetError
from tunefree.flower.says import Says

if TYPE_CHECKING:
    from tunefree.flower.private import Control

SAYS = Says()
LEFT_OUT = (  # of Flower's lines: they say nothing that ours do not
    "Start `flwr-serverapp`",
    "Successfully installed",
    "Exit Code: 201",
    "An unhandled exception occurred in the ServerApp",
    "For more information, visit",
)
STOP = 10.0  # seconds for a process to end by itself


class LocalRun:
    """A run that the SuperLink was asked for directly."""

    def __init__(
        self,
        control: Control,
        app: Path,
        config: dict[str, Any],
        tell: Callable[[str], None] | None = None,
    ) -> None:
        """`tell` is given each line of its log, in place of our standard error."""
        from tunefree.flower.private import RefusedError, UnreachableError

        self._control, self._errors = control, (RefusedError, UnreachableError)
        self._tell = tell or show
        try:
            self.id = control.start(app.resolve(), config)
        except self._errors as error:
            raise FleetError(f"the SuperLink starts no run of '{app}': {error}") from error
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        with suppress(*self._errors):
            for line in self._control.log(self.id):
                self._tell(line)

    def over(self) -> bool:
        """Whether it has ended, or the SuperLink has."""
        return not self._thread.is_alive()

    def end(self) -> str:
        """End it if it has not ended, politely; why it failed, and nothing if it did not."""
        with closing(self._control) as control, suppress(*self._errors):
            if not self.over():
                control.stop(self.id)
                self._thread.join(STOP)
            state = control.state(self.id)
            return "" if state.sub_status == "completed" else state.details or state.status
        return "the SuperLink is gone"


class StockRun:
    """`flwr run`, for versions of Flower that were not tried."""

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
    """A line of the server's log, with its time in place of Flower's level."""
    text = re.sub(r"^(INFO|WARNING|ERROR) +: +", "", line).strip()
    if text and not text.startswith(LEFT_OUT):
        SAYS(text)


def end_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a process and all that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
