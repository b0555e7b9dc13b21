"""What private records cost: CPU seconds of a round with them against the same round without.

    python evidence/benchmarks/records.py --rounds 20

One process, one core, rounds of both interleaved; the ratios are the result.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import nn

import tunefree

CLIENTS, RECORDS, BATCH, STEPS = 5, 500, 64, 5
MODELS = {  # on 28 x 28 images
    "softmax": lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 10)),
    "MLP": lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10)),
    "CNN": lambda: nn.Sequential(
        *(nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(10, 20, 5), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Linear(50, 10)),
    ),
}


def run(name: str, rounds: int, privacy: tunefree.Privacy | None) -> tunefree.Run:
    torch.manual_seed(0)
    images = torch.randn(CLIENTS, RECORDS, 1, 28, 28)
    clients = [(x, torch.randint(10, (RECORDS,))) for x in images]
    return tunefree.Run(
        MODELS[name](),
        clients,
        algorithm="polarfl_stateless",
        privacy=privacy,
        rounds=rounds,
        per_round=CLIENTS,
        local_steps=STEPS,
        batch_size=BATCH,
        eval_every=rounds,
        fleet="serial",
        progress=False,
    )


def measured(name: str, rounds: int) -> dict[str, float]:
    both = [iter(run(name, rounds, p)) for p in (None, tunefree.Privacy(8, "record"))]
    seconds: list[list[float]] = [[], []]
    for steps in both:
        next(steps)  # starts its fleet
    for _ in range(rounds - 1):  # the last round also evaluates
        for steps, times in zip(both, seconds, strict=True):
            before = time.process_time()
            next(steps)
            times.append(time.process_time() - before)
    plain, private = (statistics.median(times[1:]) for times in seconds)
    return {"plain": plain, "private": private, "factor": private / plain}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("records.json"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = {name: measured(name, args.rounds) for name in MODELS}
    for name, row in found.items():
        said = f"{row['private']:.3f} s against {row['plain']:.3f} s"
        sys.stdout.write(f"{name:8} {row['factor']:.1f} times: {said}\n")
    torch_version = torch.__version__
    setup = {"clients": CLIENTS, "batch": BATCH, "steps": STEPS, "torch": torch_version}
    args.out.write_text(json.dumps({**setup, "rounds": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
