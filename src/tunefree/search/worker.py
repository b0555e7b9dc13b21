"""A batch's worker process: does one run after another; exits at once when its batch ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from tunefree.errors import ConfigError, FleetError, RecordError, WireError
from tunefree.record import Row
from tunefree.run.assemble import Run, prepare, resume_command
from tunefree.settings import Settings

PAUSE = 0.2  # seconds between rows that are sent only to show progress

Send = Callable[[dict[str, Any]], None]


def run_job(
    settings: Settings, facts: Mapping[str, object], floors: Mapping[int, float], send: Send
) -> None:
    """Do one run to its end, from the start or from where it was interrupted."""
    end, reason = "done", ""
    try:
        run = open_run(settings, facts)
        with closing(run.record):
            if not finish(run, floors, send):
                end = "pruned"
    except WireError:
        end = "diverged"  # the reason is in the run file
    except ConfigError as error:
        send({"end": "refused", "error": error})
        return
    except (FleetError, RecordError) as error:
        end, reason = "failed", str(error)
    send({"end": end, "reason": reason})


def open_run(chosen: Settings, facts: Mapping[str, object]) -> Run:
    """A new run, or an interrupted one resumed from its last checkpoint."""
    path = Path(chosen.out)
    return resume_command(path, chosen.fleet) if path.exists() else prepare(chosen, facts)


def finish(run: Run, floors: Mapping[int, float], send: Send) -> bool:
    """Train to the end, or until an accuracy is below its floor; whether it got to the end."""
    sent = 0.0
    with closing(iter(run)) as rows:
        for row in rows:
            if "train_loss" in row or time.monotonic() - sent > PAUSE:
                sent = time.monotonic()
                send({"row": row})
            if hopeless(row, floors):
                run.record.note(
                    pruned=f"accuracy {row['accuracy']:.4f} at round {row['t'] + 1:.0f} is below "
                    f"{floors[int(row['t'])]:.4f}, the median of the trials run in full"
                )
                return False
    return True


def hopeless(row: Row, floors: Mapping[int, float]) -> bool:
    return "accuracy" in row and row["accuracy"] < floors.get(int(row["t"]), 0.0)


def end_with_batch() -> None:
    """Exit when standard input closes, which it does however the batch's process ends."""
    sys.stdin.buffer.read()
    os._exit(1)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the batch decides when to stop
    threading.Thread(target=end_with_batch, daemon=True).start()
    torch.set_num_threads(1)
    pipe = Connection(int(sys.argv[1]))

    warnings.showwarning = lambda message, *_: pipe.send({"note": str(message)})
    try:
        while True:
            settings, facts, floors = pipe.recv()
            run_job(settings, facts, floors, pipe.send)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


if __name__ == "__main__":
    main()
