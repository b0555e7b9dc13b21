"""A fair comparison: FedAvg after a search for its step size, and PolarFL without one.

    python examples/against_a_tuned_baseline.py

The search trains FedAvg with several step sizes, scores each on held-out samples of the clients,
and records its tuning bill: the rounds that devices would have to train before the real training.
Then both methods are trained on other seeds and scored on the test set.
"""

import tempfile
from pathlib import Path
from typing import Any

from tunefree import search
from tunefree.cli import main as command

DATA, PARTITION, GRID = "digits", "dirichlet:0.1", "eta=0.003,0.01,0.03,0.1,0.3"


def tune(folder: Path, grid: str, sizes: dict[str, int]) -> Path:
    """The file with what `tunefree tune fedavg` finds, and its tuning bill."""
    flags = [word for key, n in sizes.items() for word in (f"--{key.replace('_', '-')}", str(n))]
    where = ["--data", DATA, "--partition", PARTITION, "--out", str(folder)]
    seeds = ["--seeds", "1000", "1001"]  # with one seed, two step sizes tie
    assert command(["tune", "fedavg", "--grid", grid, *seeds, *where, *flags]) == 0
    return folder / "tuned.json"


def main(
    folder: Path, grid: str = GRID, seeds: tuple[int, ...] = (0, 1, 2), **changed: int
) -> list[search.Outcome]:
    sizes: dict[str, Any] = {"clients": 50, "per_round": 10, "local_steps": 10, "rounds": 100}
    sizes |= changed
    tuned = tune(folder / "search", grid, sizes)
    shared = search.settings(data=DATA, partition=PARTITION, **sizes)
    methods = ["polarfl", f"fedavg@{tuned}"]
    outcomes = search.compare(methods, shared, seeds, folder / "comparison")
    for each in outcomes:
        before = each.tuning["rounds"] if each.tuning else 0
        print(f"{each.algorithm}: accuracy {each.accuracy:.3f} after {sizes['rounds']} rounds")
        print(f"  and {before} rounds of tuning before them")
    return outcomes


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
