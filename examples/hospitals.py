"""One table with a hospital column, and the accuracy for each hospital.

    pip install pandas
    python examples/hospitals.py

The rows of a table about breast tumours belong to six hospitals of very different size, with
different cases: some have mostly large tumours, some small ones. They train one model together. We
evaluate it on each hospital's own data and look for the worst.
"""

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from torch import manual_seed, nn

import tunefree

SHARES = {"City": 0.4, "North": 0.25, "South": 0.15, "Lake": 0.1, "Hill": 0.06, "Island": 0.04}


def patients() -> pd.DataFrame:
    """A row for each tumour: ten measurements, whether it is benign, and the hospital."""
    table = load_breast_cancer(as_frame=True).frame.filter(regex="mean|target")
    measured = table.columns.drop("target")
    table[measured] = (table[measured] - table[measured].mean()) / table[measured].std()
    rng = np.random.default_rng(0)
    by_size = (table["mean radius"] + rng.normal(0, 1, len(table))).sort_values().index
    ends = (np.cumsum(list(SHARES.values())) * len(table)).round().astype(int)[:-1]
    for name, rows in zip(SHARES, np.split(by_size.to_numpy(), ends), strict=True):
        table.loc[rows, "hospital"] = name
    return table


def main(rounds: int = 40) -> tuple[tunefree.Run, dict[str, float]]:
    table = patients()  # with your own data: pd.read_csv("patients.csv")
    test = table.sample(frac=0.2, random_state=0)
    train = table.drop(test.index)
    hospitals = {name: rows.drop(columns="hospital") for name, rows in train.groupby("hospital")}
    manual_seed(0)
    run = tunefree.train(
        nn.Linear(10, 2),
        list(hospitals.values()),
        test.drop(columns="hospital"),
        rounds=rounds,
        local_epochs=1,  # a client takes one pass over its rows in a round
    )
    print(f"test accuracy {run.history[-1]['accuracy']:.3f}")
    rows = run.client_scores()
    for name, row in zip(hospitals, rows, strict=True):
        print(f"{name:7} {row['n']:4.0f} rows, accuracy {row['accuracy']:.3f}")
    span = tunefree.spread(rows)
    worst = list(hospitals)[int(span["worst_client"])]
    print(f"worst: {worst} with {span['worst']:.3f}; mean {span['mean']:.3f} ± {span['std']:.3f}")
    return run, span


if __name__ == "__main__":
    main()
