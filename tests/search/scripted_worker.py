"""A worker process that trains nothing: the method's label decides what it does with a run."""

from __future__ import annotations

import os
import signal
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tunefree.errors import ConfigError
from tunefree.record import Facts, Record
from tunefree.settings import Settings


def act(config: Settings, facts: dict[str, Any], pipe: Connection) -> None:
    path, how = Path(config.out), facts["label"]
    tries = path.with_suffix(".tries")
    count = len(tries.read_text()) if tries.exists() else 0
    tries.write_text("x" * (count + 1))
    if how == "deadly" or (how == "deadly once" and not count):
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "broken":
        raise ZeroDivisionError
    if how == "sleepy":
        pipe.send({"row": {"t": 0, "seconds": 0.1}})
        time.sleep(60)
    pipe.send({"note": "beta is 1"})
    if how == "failed":
        pipe.send({"end": how, "reason": "failed because"})
        return
    if how == "refused":
        pipe.send({"end": how, "error": ConfigError("refused because", setting="seed", value=1)})
        return
    known = {**facts, "state": "done", "settings": config.asdict()}
    Record.create(path, Facts.read(known)).close()
    pipe.send({"end": "done", "reason": ""})


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe = Connection(int(sys.argv[1]))
    sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
    while True:
        try:
            config, facts, _ = pipe.recv()
        except EOFError:
            return
        act(config, facts, pipe)


if __name__ == "__main__":
    main()
