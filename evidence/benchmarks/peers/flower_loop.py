"""FedAvg on workload A or B in Flower's simulation; it runs as many rounds as each input line says.

Flower needs the main thread, so the input is read in another: the server's evaluation, which comes
after every round, reports that the round is over and waits for the next ticket.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Iterator
from typing import Any

import sizes
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from network import layers
from torch import nn

WORKLOAD = sys.argv[1] if len(sys.argv) > 1 else "A"
WORKERS = len(os.sched_getaffinity(0))
DATA: list[tuple[torch.Tensor, torch.Tensor]] = []  # one copy per process of Flower's
client_app, server_app = ClientApp(), ServerApp()
tickets: queue.Queue[None] = queue.Queue()
over: queue.Queue[None] = queue.Queue()


def model() -> nn.Module:
    return nn.Sequential(*layers(WORKLOAD))


@client_app.train()
def train(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    if not DATA:
        x, y = map(torch.from_numpy, sizes.client_data())
        DATA.append((x, y))
    x, y = (part[int(context.node_config["partition-id"])] for part in DATA[0])
    module = model()
    module.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(module.parameters(), lr=sizes.ETA)
    order = torch.randperm(sizes.HELD)
    for k in range(sizes.K):
        batch = order[k * sizes.BATCH % sizes.HELD :][: sizes.BATCH]
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(x[batch]), y[batch]).backward()
        optimiser.step()
    content: dict[str, Any] = {
        "arrays": ArrayRecord(module.state_dict()),
        "metrics": MetricRecord({"num-examples": sizes.HELD}),
    }
    return Message(RecordDict(content), reply_to=message)


def gate(server_round: int, arrays: Any) -> MetricRecord:
    if server_round:  # it is also called before the first round
        over.put(None)
        tickets.get()
    return MetricRecord({"round": server_round})


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    share = sizes.S / sizes.N
    FedAvg(fraction_train=share, fraction_evaluate=0.0, min_train_nodes=sizes.S).start(
        grid,
        ArrayRecord(model().state_dict()),
        num_rounds=10**6,
        train_config=ConfigRecord({}),
        evaluate_fn=gate,
    )


def rounds() -> Iterator[None]:
    while True:
        over.get()
        yield
        tickets.put(None)


def turns() -> None:
    sizes.take_turns(rounds())
    os._exit(0)  # Flower has a million rounds to go


if __name__ == "__main__":
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    threading.Thread(target=turns, daemon=True).start()
    backend: Any = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": WORKERS}}
    run_simulation(server_app, client_app, num_supernodes=sizes.N, backend_config=backend)
