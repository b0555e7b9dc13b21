"""An Algorithm for pfl-research (`pip install pfl tunefree`) without a learning rate.

python examples/pfl_app/train.py
"""

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import FederatedNNAlgorithm, NNAlgorithmParams
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from pfl.stats import MappedVectorStatistics
from sklearn.datasets import load_digits
from torch import nn

from tunefree.optim import LocalSteps, Server

EPOCHS, BATCH = 1, 4


class PolarFL(FederatedNNAlgorithm):
    """Users take steps of the server's lengths; pfl adds up their uploads."""

    def __init__(self, module, local_steps):
        super().__init__()
        self.server = Server(module, local_steps)

    def get_next_central_contexts(self, model, iteration, params, *others):
        self.config = self.server.config(params.train_cohort_size)
        return super().get_next_central_contexts(model, iteration, params, *others)

    def train_one_user(self, initial_model_state, model, user_dataset, central_context):
        module = model.pytorch_model
        module.load_state_dict(self.server.start())
        steps = EPOCHS * -(-len(user_dataset) // BATCH)
        optimizer = LocalSteps(module.named_parameters(), self.config, steps)
        for _ in range(EPOCHS):
            for x, y in user_dataset.iter(BATCH):
                optimizer.zero_grad()
                module.loss(x, y).backward()
                optimizer.step()
        return MappedVectorStatistics(optimizer.upload()), Metrics()

    def process_aggregated_statistics(self, central_context, aggregate_metrics, model, statistics):
        statistics.average()
        self.server.step([dict(statistics.items())])
        model.pytorch_model.load_state_dict(self.server.model())  # callbacks see the average
        return model, Metrics()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        return self.body(x)

    def loss(self, x, y):
        return nn.functional.cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x, y):
        right = (self(x).argmax(1) == y).sum().item()
        return {"accuracy": Weighted(right, len(y))}


def samples():
    data = load_digits()
    x = torch.tensor(data.images, dtype=torch.float32) / 16
    return x, torch.tensor(data.target)


def user(i):
    """A user has samples of three classes."""
    x, y = (values[:1400] for values in samples())
    own = torch.isin(y, torch.tensor([i % 10, (i + 1) % 10, (i + 4) % 10])).nonzero().flatten()
    return PyTorchTensorDataset((x[own[i::10]], y[own[i::10]]), user_id=str(i))


def main(rounds=30, cohort=5):
    """The accuracy on samples that no user has."""
    np.random.seed(0)  # noqa: NPY002  # by which pfl draws
    torch.manual_seed(0)
    module = Net()
    users = FederatedDataset(user, get_user_sampler("random", list(range(10))))
    test = PyTorchTensorDataset(tuple(values[1400:] for values in samples()))
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=0.0))
    PolarFL(module, local_steps=10).run(
        NNAlgorithmParams(rounds, rounds, cohort, None),
        SimulatedBackend(users, None),
        model,
        NNTrainHyperParams(BATCH, EPOCHS, 0.0),  # pfl asks for a rate, and nothing uses it
        NNEvalHyperParams(None),
        [CentralEvaluationCallback(test)],
    )
    (_, right), *_ = model.evaluate(test)
    return right.overall_value


if __name__ == "__main__":
    print(f"accuracy {main():.3f}")
