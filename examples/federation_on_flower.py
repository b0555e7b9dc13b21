"""A whole federation on this machine: a Flower SuperLink, three nodes, TLS and node keys.

    pip install 'tunefree[flower]'
    python examples/federation_on_flower.py

It does what `tunefree flower new digits` and `tunefree flower up digits --tls --auth` do, loads the
trained model, and trains the same in the simulator: the two models are bit-identical.
"""

import runpy
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

import tunefree
from tunefree.cli import main as command
from tunefree.models import seeded


def new_app(folder: Path) -> dict[str, Any]:
    """Write a complete app; return its functions that make the model and the data."""
    assert command(["flower", "new", str(folder)]) == 0
    return runpy.run_path(str(folder / folder.name / "task.py"))


def simulated(task: dict[str, Any], nodes: int, rounds: int) -> tunefree.Run:
    """The same federation, simulated in this process."""
    places = [{"partition-id": i, "num-partitions": nodes} for i in range(nodes)]
    clients = [task["load_data"](SimpleNamespace(node_config=place)) for place in places]
    model = seeded(task["build_model"], seed=0)
    return tunefree.train(model, clients, task["load_test"](None), rounds=rounds, local_steps=5)


def main(folder: Path, nodes: int = 3, rounds: int = 30) -> tuple[torch.nn.Module, tunefree.Run]:
    task = new_app(folder / "digits")
    up = ["flower", "up", str(folder / "digits"), "--nodes", str(nodes), "--tls", "--auth"]
    assert command([*up, "--run-config", f"rounds={rounds}"]) == 0
    file = folder / "digits-federation" / "superlink" / "federation.sqlite"
    model = tunefree.load(file, task["build_model"]())
    run = simulated(task, nodes, rounds)
    pairs = zip(model.parameters(), run.model.parameters(), strict=True)
    same = all(torch.equal(there, here) for there, here in pairs)
    print(f"the simulator gives {'the same bits' if same else 'another model'}")
    return model, run


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
