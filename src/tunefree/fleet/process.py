"""A child process at the other end of a pipe."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import Pipe
from typing import Any


def lacking() -> str:
    """What this system lacks for worker processes; empty if it has all."""
    return "" if hasattr(os, "fork") else "processes here cannot inherit open files"


class WorkerProcess:
    """Runs a module as a command whose arguments are the descriptors of the pipe and others."""

    def __init__(self, module: str, fds: Sequence[int] = (), **more: Any) -> None:
        self.pipe, theirs = Pipe()
        fds = [theirs.fileno(), *fds]
        path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, fds)],
            pass_fds=fds,
            env=os.environ | path | more.pop("env", {}),
            **more,
        )
        theirs.close()

    def send(self, value: Any) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # `receive` will notice
            self.pipe.send(value)

    def receive(self) -> Any:
        """The next value, or None if the process has died."""
        try:
            return self.pipe.recv()
        except (EOFError, ConnectionResetError):
            return None

    def end(self, seconds: float) -> int:
        """Close the pipe, kill the process if it does not exit in time; returns its exit code."""
        self.pipe.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.terminate()
        code = self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        return code
