"""The server: it averages the clients' models and tests the result."""

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits_app.task import Net, test

app = ServerApp()


def score(server_round, arrays):
    model = Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    loss, accuracy = test(model)
    return MetricRecord({"loss": loss, "accuracy": accuracy})


@app.main()
def main(grid: Grid, context: Context):
    torch.manual_seed(0)
    model = Net()
    run = context.run_config
    strategy = FedAvg(fraction_train=run["fraction-train"], fraction_evaluate=0.0)
    strategy.start(
        grid, ArrayRecord(model.state_dict()), run["num-server-rounds"], evaluate_fn=score
    )
