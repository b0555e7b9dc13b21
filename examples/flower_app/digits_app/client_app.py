"""The client: it trains the model that it is sent on its own data."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_app.task import Net, load_data, train

app = ClientApp()


@app.train()
def train_round(message: Message, context: Context):
    node, run, config = context.node_config, context.run_config, message.content["config"]
    torch.manual_seed(100 * config["server-round"] + node["partition-id"])
    model = Net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loader = load_data(node["partition-id"], node["num-partitions"])
    loss = train(model, loader, run["local-epochs"], run["learning-rate"])
    arrays = ArrayRecord(model.state_dict())
    metrics = MetricRecord({"loss": loss, "num-examples": len(loader.dataset)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
