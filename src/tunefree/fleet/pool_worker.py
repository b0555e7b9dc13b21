"""A pool's worker process: waits for a job, does it, replies; exits when its pool is gone."""

from __future__ import annotations

import signal
import sys
from multiprocessing.connection import Connection

import torch

from tunefree.errors import FleetError
from tunefree.fleet.arena import Arena
from tunefree.fleet.work import do, keep_memory
from tunefree.models.objective import one_thread


def serve(pipe: Connection, common: Arena, inbox: Arena, outbox: Arena) -> None:
    """Reply to every batch of jobs with a parcel, or with an error message."""
    algo, oracle_of = common.unpack(pipe.recv(), copy=False)
    while True:
        jobs = inbox.unpack(pipe.recv(), copy=False)
        try:
            with one_thread():
                answer = outbox.pack([do(algo, oracle_of, state, job) for state, job in jobs])
        except FleetError as error:
            pipe.send(str(error))
        else:
            pipe.send(answer)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the pool decides when to stop
    torch.set_num_threads(1)
    keep_memory()
    pipe, *arenas = (int(fd) for fd in sys.argv[1:])
    try:
        serve(Connection(pipe), *(Arena(fd) for fd in arenas))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


if __name__ == "__main__":
    main()
