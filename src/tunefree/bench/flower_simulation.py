"""FedAvg on a workload in Flower's own simulation engine, where it is installed, for the bench."""

from __future__ import annotations

import os
import time
from itertools import pairwise
from typing import Any

from tunefree.bench.bare_loop import Loop
from tunefree.bench.workloads import Workload
from tunefree.fleet.pool import cores

LOOPS: dict[str, Loop] = {}  # one in each of Flower's worker processes


def seconds_per_round(w: Workload, rounds: int) -> tuple[float, list[float]]:
    """Seconds until the first round was done, and those of each later round."""
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("RAY_DISABLE_DOCKER_CPU_WARNING", "1")
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client_app, server_app = ClientApp(), ServerApp()
    ends: list[float] = []

    @client_app.train()  # type: ignore[untyped-decorator, unused-ignore]
    def train(message: Message, context: Context) -> Message:
        import torch

        torch.set_num_threads(1)
        if w.name not in LOOPS:
            LOOPS[w.name] = Loop(w)
        loop = LOOPS[w.name]
        names = list(loop.model.state_dict())
        arrays = message.content.array_records["arrays"].to_torch_state_dict()
        number = int(context.node_config["partition-id"])
        weights = loop.client([arrays[name] for name in names], number, seed=0)
        content: dict[str, Any] = {
            "arrays": ArrayRecord(dict(zip(names, weights, strict=True))),
            "metrics": MetricRecord({"num-examples": w.held}),
        }
        return Message(RecordDict(content), reply_to=message)

    def clock(server_round: int, arrays: Any) -> MetricRecord:
        ends.append(time.perf_counter())
        return MetricRecord({"round": server_round})

    @server_app.main()  # type: ignore[untyped-decorator, unused-ignore]
    def serve(grid: Grid, context: Context) -> None:
        strategy = FedAvg(fraction_train=w.S / w.N, fraction_evaluate=0.0, min_train_nodes=w.S)
        strategy.start(
            grid,
            ArrayRecord(Loop(w).model.state_dict()),
            num_rounds=rounds + 1,
            train_config=ConfigRecord({}),
            evaluate_fn=clock,
        )

    began = time.perf_counter()
    backend: Any = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": cores()}}
    run_simulation(server_app, client_app, num_supernodes=w.N, backend_config=backend)
    first = ends[1] - began  # `clock` is also called before the first round
    return first, [after - before for before, after in pairwise(ends[1:])]
