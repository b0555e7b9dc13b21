"""theta -> scores: test accuracy and loss, training loss, and the gradient norm on request."""

from __future__ import annotations

import numpy as np

from tunefree.core import Vec, mean, norm, stream
from tunefree.data.samples import Federation, Index, Samples
from tunefree.models.oracle import EVALUATION_BATCH, DataOracle, Objective

TRAINING_SAMPLES = 10_000  # the training loss looks at about so many samples, the same every time


class Evaluator:
    """Scores models on a federation's test set and on its clients' samples."""

    def __init__(
        self, objective: Objective, federation: Federation, seed: int, grad_norm: bool = False
    ) -> None:
        self._objective, self._federation, self._grad_norm = objective, federation, grad_norm
        self._looked_at = training_sample(federation, seed)

    def __call__(self, theta: Vec) -> dict[str, float]:
        """`accuracy` and `loss` on the test set, `train_loss` = mean over clients of f_i."""
        objective, federation = self._objective, self._federation
        scores: dict[str, float] = {}
        if federation.test is not None:
            scores = held_out_scores(objective, theta, federation.test, federation.classes)
        losses = [self._loss(theta, index) for index in self._looked_at]
        scores["train_loss"] = float(np.mean(losses))
        if self._grad_norm:
            scores["grad_norm"] = float(norm(self._gradient(theta)))
        return scores

    def _loss(self, theta: Vec, index: Index) -> float:
        x, y = self._federation.train.batch(index)
        objective = self._objective
        return float(objective.loss(objective.outputs(theta, x), y.to(objective.device)))

    def _gradient(self, theta: Vec) -> Vec:
        """∇f = mean over all clients of ∇f_i, each over all of its samples."""
        rng = stream(0, "gradient norm")
        train = self._federation.train
        return mean(
            DataOracle(self._objective, train, part, 1, rng).full_grad(theta)
            for part in self._federation.parts
        )


def training_sample(federation: Federation, seed: int) -> list[Index]:
    """For each client (of very many: for some) a few of its samples, always the same ones."""
    N = len(federation)
    rng = stream(seed, "training sample")
    clients = sorted(rng.choice(N, min(N, TRAINING_SAMPLES), replace=False).tolist())
    each = min(EVALUATION_BATCH, max(1, TRAINING_SAMPLES // N))
    return [rng.permutation(federation.parts[client])[:each] for client in clients]


def held_out_scores(
    objective: Objective, theta: Vec, samples: Samples, classes: int | None
) -> dict[str, float]:
    """Mean loss, and the share of right answers if there are classes, in batches."""
    loss, right = 0.0, 0
    for x, y in samples.batches(EVALUATION_BATCH):
        outputs, y = objective.outputs(theta, x), y.to(objective.device)
        loss += float(objective.loss(outputs, y)) * len(y)
        if classes is not None:
            right += int((outputs.argmax(dim=-1) == y).sum())
    scores = {"loss": loss / len(samples)}
    return scores if classes is None else {"accuracy": right / len(samples), **scores}
