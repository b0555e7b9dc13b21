"""The program of a node's worker: it loads one run's app, and does one job after the other."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp

from tunefree.flower.log import EXPECTED
from tunefree.node import apps, messages


def main(fd: int, warm: bool) -> None:
    """Work for the node at the other end of the connection, until that is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the node decides when to stop
    apps.plain_log()
    if warm:  # load what nearly every app needs before the first job
        with contextlib.suppress(ImportError):
            importlib.import_module("tunefree.flower.client_work")
    running: tuple[ClientApp, Context] | None = None
    with Connection(fd) as node:
        while (frame := messages.read(node)) is not None:
            words, objects = frame
            message = messages.inflate(words["message"], objects)
            try:
                running = running or load(words)
                reply = running[0](message, running[1])
            except Exception as error:
                reply = messages.failed(message, one_line(error))
            proto, tree, parts = messages.deflate(reply)
            messages.write(node, {}, {"proto": proto, "tree": tree, **parts})


def load(words: dict[str, Any]) -> tuple[ClientApp, Context]:
    """The app of the run that this process works for, and its context."""
    app = apps.App(**words["app"])
    context = apps.context_of(words["run"], words["node"], words["node_config"], app)
    return apps.load_client_app(app), context


def one_line(error: Exception) -> str:
    """An error in one line; the traceback of an unexpected one goes to the log."""
    if isinstance(error, EXPECTED):
        return str(error)
    traceback.print_exc()
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    if os.getppid() == int(sys.argv[2]):  # otherwise the node has ended already
        main(int(sys.argv[1]), "--warm" in sys.argv)
