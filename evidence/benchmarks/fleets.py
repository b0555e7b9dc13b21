"""What a fleet adds to a round and to a job: serial, pool and Ray in turn.

    python evidence/benchmarks/fleets.py --rounds 30

The runs take turns, a round at a time, so that a busy machine slows all of them; medians in
seconds and their ratios, a line of JSON each. `A` is the workload of `tunefree-evidence bench`,
where a job takes a while; with a number of clients instead, a round is little but overhead.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray

import tunefree
from tunefree_evidence.speed.measure import FOREVER, Fleet, make_run
from tunefree_evidence.speed.workloads import Workload, workload

FLEETS: tuple[Fleet, ...] = ("serial", "pool", "ray")


def tiny(N: int) -> Workload:
    """The two samples of a client twice through softmax regression."""
    return workload("B")._replace(name=f"{N} clients", N=N, samples=2, S=100, K=2, batch=2)


def measured(w: Workload, rounds: int, folder: Path) -> dict[str, Any]:
    schedule = tunefree.Schedule(opening="zero")
    turns, times, first = {}, {name: list[float]() for name in FLEETS}, {}
    for name in FLEETS:
        before = time.perf_counter()
        run = make_run(
            w, w.system(FOREVER), name, "padamfed", folder / f"{name}.sqlite", schedule=schedule
        )
        turns[name] = iter(run)
        next(turns[name])
        next(turns[name])
        first[name] = round(time.perf_counter() - before, 1)
    for _ in range(rounds):
        for name, turn in turns.items():
            before = time.perf_counter()
            next(turn)
            times[name].append(time.perf_counter() - before)
    for turn in turns.values():
        turn.close()
    medians = {name: statistics.median(each) for name, each in times.items()}
    serial = medians["serial"]
    return {
        "seconds": {name: round(each, 4) for name, each in medians.items()},
        "first round after": first,
        "to serial": {name: round(each / serial, 2) for name, each in medians.items()},
        "ray to pool": round(medians["ray"] / medians["pool"], 2),
        "milliseconds per job": {n: round(1e3 * each / w.S, 3) for n, each in medians.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("workloads", nargs="*", default=["A", "1000", "100000"])
    args = parser.parse_args()
    ray.init(address="local", num_cpus=os.cpu_count(), include_dashboard=False, log_to_driver=False)
    for name in args.workloads:
        w = tiny(int(name)) if name.isdigit() else workload(name)
        with tempfile.TemporaryDirectory() as folder:
            found = measured(w, args.rounds, Path(folder))
        sys.stdout.write(json.dumps({w.name: found}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
