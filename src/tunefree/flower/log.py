"""Lines for an operator's log: the time and a sentence, and no line twice in a row."""

from __future__ import annotations

import re
import signal
import sys
import time

from tunefree.errors import ConfigError, FleetError, RecordError, WireError

TIME = "%Y-%m-%d %H:%M:%S"
MOST = 500  # characters of a client's error that are shown
EXPECTED = (
    ConfigError,
    FleetError,
    RecordError,
    WireError,
)  # their message is enough; no traceback


class Log:
    """Writes to standard error, which systemd, Docker and `up` all record."""

    def __init__(self, name: str = "") -> None:
        self._name, self._last = f"{name}: " if name else "", ""

    def __call__(self, sentence: str) -> None:
        if sentence != self._last:
            self._last = sentence
            now = time.strftime(TIME)
            print(f"{now} {self._name}{sentence}", file=sys.stderr, flush=True)  # noqa: T201


def exit_text(code: int) -> str:
    """How a process ended."""
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def cleaned(text: str) -> str:
    """Text that a client sent, short and without control characters, fit for any log or page."""
    shown = "".join(c if c.isprintable() else " " for c in without_colours(text)).strip()
    return shown if len(shown) <= MOST else f"{shown[: MOST - 3]}..."


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
