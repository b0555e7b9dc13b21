"""Your own training loop: log every round, stop early, resume later from the file.

    python examples/live_logging.py

There are no callbacks: your loop gets the rows. Here they are written to rounds.csv; `log` can be
any other function of a row, such as `wandb.log`, or one that calls TensorBoard's `add_scalar`.
"""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import manual_seed, nn

import tunefree

Log = Callable[[dict[str, float]], object]  # takes the row of a round


def to_csv(file: TextIO) -> Log:
    """A line for each round; scores are empty where a round was not evaluated."""
    writer = csv.DictWriter(file, ["round", "bits_up", "accuracy", "loss"], extrasaction="ignore")
    writer.writeheader()
    return writer.writerow


def main(log: Log, out: Path, rounds: int = 60, enough: float = 0.9) -> tunefree.Run:
    x, y = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split((x / 16).astype("float32"), y, random_state=0)
    clients = (x, y), tunefree.partition.dirichlet(y, clients=20, alpha=0.3)
    manual_seed(0)
    given = nn.Linear(64, 10), clients, (x_test, y_test)
    for row in tunefree.Run(*given, rounds=rounds, per_round=5, eval_every=5, out=out):
        log(row)
        if row.get("accuracy", 0) >= enough:
            print(f"stopped after round {row['round']:.0f} with accuracy {row['accuracy']:.3f}")
            break
    run = tunefree.Run.resume(out, *given)  # also tomorrow, or in another process
    for row in run:
        log(row)
    print(run)
    return run


if __name__ == "__main__":
    out = Path("live.sqlite")
    out.unlink(missing_ok=True)  # from an earlier run of this example
    with Path("rounds.csv").open("w", newline="", encoding="utf-8") as file:
        main(to_csv(file), out)
