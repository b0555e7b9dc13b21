"""A worker process that trains nothing: the method's label decides what it does with a run."""

from __future__ import annotations

import os
import signal
import sys
import time
from multiprocessing.connection import Connection

from tunefree.errors import ConfigError
from tunefree.record import Facts, Record
from tunefree.search.batch import PlannedRun, Progress, failure, saved_result


def act(run: PlannedRun, pipe: Connection) -> None:
    how, tries = run.label, run.path.with_suffix(".tries")
    count = len(tries.read_text()) if tries.exists() else 0
    tries.write_text("x" * (count + 1))
    if how == "deadly" or (how == "deadly once" and not count):
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "broken":
        raise ZeroDivisionError
    if how == "sleepy":
        pipe.send(Progress(run, {"t": 0, "seconds": 0.1}))
        time.sleep(60)
    pipe.send("beta is 1")
    if how == "failed":
        pipe.send(failure(run, "failed because"))
        return
    if how == "refused":
        pipe.send(ConfigError("refused because", setting="seed", value=1))
        return
    known = {**run.facts, "state": "done", "settings": run.settings.asdict()}
    Record.create(run.path, Facts.read(known)).close()
    pipe.send(saved_result(run))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe = Connection(int(sys.argv[1]))
    sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
    while True:
        try:
            act(pipe.recv(), pipe)
        except EOFError:
            return


if __name__ == "__main__":
    main()
