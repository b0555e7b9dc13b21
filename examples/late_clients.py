"""Late clients: how long training takes if the server does not wait for the slow ones.

    python examples/late_clients.py

A file with a line `client,seconds` per job has the training times of the clients, as a log would;
here we make one up in which every fifth client is ten times slower. Two schedules are compared on
this virtual clock: synchronous rounds, which wait for all, and a buffered one, where 15 clients
train at a time and the server takes a step whenever five uploads have arrived, however old.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import tunefree

CLIENTS = 30


def write_trace(path: Path) -> None:
    """Times of three jobs of each client."""
    rng = np.random.default_rng(0)
    usual = [10.0 if client % 5 == 0 else 1.0 for client in range(CLIENTS)] * 3
    took = [f"{i % CLIENTS},{each * rng.uniform(0.8, 1.2):.2f}" for i, each in enumerate(usual)]
    path.write_text("\n".join(["client,seconds", *took]), encoding="utf-8")


def main(rounds: int = 100, target: float = 0.9) -> dict[str, tunefree.Run]:
    x, y = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split((x / 16).astype("float32"), y, random_state=0)
    clients = (x, y), tunefree.partition.dirichlet(y, clients=CLIENTS, alpha=0.3)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    task: Any = model, clients, (x_test, y_test)
    sizes: Any = {"rounds": rounds, "per_round": 5, "eval_every": 5}
    runs: dict[str, tunefree.Run] = {}
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "seconds.csv"
        write_trace(trace)
        waiting = tunefree.Schedule("synchronous", delays=str(trace))
        buffered = tunefree.Schedule("buffered", concurrency=15, delays=str(trace))
        for each in (waiting, buffered):
            runs[each.name] = tunefree.train(*task, schedule=each, **sizes)
    for name, run in runs.items():
        rows = [row for row in run.history if row.get("accuracy", 0) >= target]
        when = f"after {rows[0]['virtual_seconds']:.0f} s" if rows else "never"
        end, oldest = run.history[-1], max(row.get("tau_max", 0) for row in run.history)
        last = f"{end['accuracy']:.3f} after {end['virtual_seconds']:.0f} s"
        print(f"{name}: accuracy {target} {when}, {last}; uploads at most {oldest:.0f} steps late")
    return runs


if __name__ == "__main__":
    main()
