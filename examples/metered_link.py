"""Compressed uploads: what one or two bits per number save, and what they cost in accuracy.

    python examples/metered_link.py

The same training three times: clients send 32 bits for each number of the model, or two, or one.
Traffic is counted from the messages themselves.
"""

from typing import Any

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import tunefree

UPLOADS = {"whole": "", "two bits": "rotated:2", "one bit": "rotated:1"}  # name -> compressor
MEGABYTE = 8e6  # bits


def accuracy_for(run: tunefree.Run, megabytes: float) -> float:
    """The last accuracy measured within this budget of uploads."""
    rows = [row for row in run.history if "accuracy" in row]
    paid = [row["accuracy"] for row in rows if row["bits_up"] <= megabytes * MEGABYTE]
    return paid[-1]


def main(rounds: int = 100, budgets: tuple[float, ...] = (0.25, 0.5, 1)) -> dict[str, tunefree.Run]:
    x, y = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split((x / 16).astype("float32"), y, random_state=0)
    clients = (x, y), tunefree.partition.dirichlet(y, clients=50, alpha=0.3)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    task = model, clients, (x_test, y_test)
    runs = {}
    for name, compressor in UPLOADS.items():
        sizes: dict[str, Any] = {"rounds": rounds, "per_round": 10, "eval_every": 1}
        runs[name] = tunefree.train(*task, **sizes, compressor=compressor)
    heads = "".join(f"{f'for {each:g} MB':>12}" for each in budgets)
    print(f"upload    {heads}   at the end")
    for name, run in runs.items():
        end = run.history[-1]
        cells = "".join(f"{accuracy_for(run, each):12.3f}" for each in budgets)
        sent = end["bits_up"] / MEGABYTE
        print(f"{name:10}{cells}   {end['accuracy']:.3f}, with {sent:.2f} MB")
    return runs


if __name__ == "__main__":
    main()
