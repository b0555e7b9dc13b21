"""Peers and tunefree take turns on workload A or B, each in its own Python.

python side_by_side.py B tunefree=PYTHON fedjax=PYTHON pfl=PYTHON --out bench-peers-B.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=("A", "B"))
    parser.add_argument("peers", nargs="+", help="NAME=PYTHON, for each NAME_loop.py here")
    parser.add_argument("--rounds", type=int, default=3, help="per turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    started = {}
    for peer in args.peers:
        name, _, python = peer.partition("=")
        command = [python, str(HERE / f"{name}_loop.py"), args.workload]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert process.stdout
        while process.stdout.readline() != "ready\n":
            if process.poll() is not None:
                raise SystemExit(f"{name} ended before its first round")
        started[name] = process
    seconds: dict[str, list[float]] = {name: [] for name in started}
    for _ in range(args.turns):
        for name, process in started.items():
            print(args.rounds, file=process.stdin, flush=True)
            seconds[name] += json.loads(process.stdout.readline())  # type: ignore[union-attr]
    for process in started.values():
        process.communicate()
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    best = medians.get("tunefree", min(medians.values()))
    for name, median in medians.items():
        sys.stdout.write(f"{name:10} {median:.4f} s per round, {median / best:.2f} times ours\n")
    if args.out:
        args.out.write_text(json.dumps({"workload": args.workload, "seconds": seconds}, indent=1))


if __name__ == "__main__":
    main()
