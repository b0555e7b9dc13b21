"""A batch's worker process: does one run after another; exits at once when its batch ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection

import torch

from tunefree.errors import ConfigError
from tunefree.search.batch import Event, PlannedRun, Progress, from_settings, perform

PAUSE = 0.2  # seconds between rows that are sent only to show progress


def do(run: PlannedRun, send: Callable[[Event | ConfigError], None]) -> None:
    """Do the run, and send its rows, not all of them, and its result or why it is refused."""
    sent = 0.0
    try:
        for event in perform(run, from_settings):
            scored = not isinstance(event, Progress) or "train_loss" in event.row
            if scored or time.monotonic() - sent > PAUSE:
                sent = time.monotonic()
                send(event)
    except ConfigError as error:
        send(error)


def end_with_batch() -> None:
    """Exit when standard input closes, which it does however the batch's process ends."""
    sys.stdin.buffer.read()
    os._exit(1)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the batch decides when to stop
    threading.Thread(target=end_with_batch, daemon=True).start()
    torch.set_num_threads(1)
    pipe = Connection(int(sys.argv[1]))
    warnings.showwarning = lambda message, *_: pipe.send(str(message))
    try:
        while True:
            do(pipe.recv(), pipe.send)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


if __name__ == "__main__":
    main()
