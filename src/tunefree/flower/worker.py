"""A node's worker: one run's app with its model and data in memory, and one job after the other."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import sys
import traceback
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from tunefree.flower import frames, private
from tunefree.flower.says import EXPECTED


def main(fd: int, warm: bool) -> None:
    """Work for the node at the other end of the socket, until it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the node decides when to stop
    private.plain_log()
    if warm:  # what nearly every app needs, while there is nothing to do yet
        with contextlib.suppress(ImportError):
            importlib.import_module("tunefree.flower.client_work")
    running: tuple[ClientApp, Context] | None = None
    with socket.socket(fileno=fd) as node:
        while (frame := frames.read(node)) is not None:
            words, objects = frame.words, frame.words["objects"]
            message = private.inflate(
                words["message"], dict(zip(objects, frame.parts, strict=True))
            )
            try:
                running = running or begin(words)
                reply = running[0](message, running[1])
            except Exception as error:
                reply = private.failed(message, said(error))
            answer(node, reply)


def begin(words: dict[str, Any]) -> tuple[ClientApp, Context]:
    """The app of the run that this process works for, and what the app is told."""
    app = private.App(**words["app"])
    context = private.context_of(words["run"], words["node"], words["node_config"], app)
    return private.load_client_app(app), context


def said(error: Exception) -> str:
    """An error in one line; one that nobody expected goes to the log in full."""
    if isinstance(error, EXPECTED):
        return str(error)
    traceback.print_exc()
    return f"{type(error).__name__}: {error}"


def answer(node: socket.socket, reply: Message) -> None:
    sent = private.deflate(reply)
    names = list(sent.objects)
    parts = [sent.proto, sent.tree, *(sent.objects[name] for name in names)]
    frames.write(node, {"objects": names, "failed": reply.has_error()}, parts)


if __name__ == "__main__":
    if os.getppid() == int(sys.argv[2]):  # or the node is gone already
        main(int(sys.argv[1]), "--warm" in sys.argv)
