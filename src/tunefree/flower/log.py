"""Lines for an operator's log: the time and a sentence, and no line twice in a row.

With TUNEFREE_LOG=json in the environment, each is a JSON object.
"""

from __future__ import annotations

import json
import logging
import os
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
        self._name, self._last = name, ""

    def __call__(self, sentence: str) -> None:
        if sentence != self._last:
            self._last = sentence
            print(stamped(sentence, self._name), file=sys.stderr, flush=True)  # noqa: T201


class JsonLines(logging.Formatter):
    """Lines of Flower's logger, those of a ServerApp among them, in our form."""

    def format(self, record: logging.LogRecord) -> str:
        return stamped(super().format(record), record.levelname.lower())


def as_json() -> bool:
    return os.environ.get("TUNEFREE_LOG") == "json"


def stamped(sentence: str, name: str = "") -> str:
    """A line with its time, unless it has one already."""
    if not as_json():
        return f"{time.strftime(TIME)} {f'{name}: ' if name else ''}{sentence}"
    if sentence.startswith('{"time": '):
        return sentence
    return json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "of": name, "says": sentence})


def exit_text(code: int) -> str:
    """How a process ended."""
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def cleaned(text: str) -> str:
    """Text that a client sent, short and without control characters, fit for any log or page."""
    shown = "".join(c if c.isprintable() else " " for c in without_colours(text)).strip()
    return shown if len(shown) <= MOST else f"{shown[: MOST - 3]}..."


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
