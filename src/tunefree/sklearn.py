"""A federated classifier with scikit-learn's interface: fit, predict, predict_proba, score."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)
from torch import nn

from tunefree.errors import ConfigError
from tunefree.methods.own import Maker
from tunefree.models import seeded
from tunefree.run.run import train

__all__ = ["FederatedClassifier"]

Build: TypeAlias = Callable[[int, int], nn.Module]  # of the numbers of features and classes


class FederatedClassifier(ClassifierMixin, BaseEstimator):
    """A model trained on groups of samples that stay apart: each group is a client.

    Args:
        model: A module, or a function that makes one for so many features and classes; by default
            a linear one, which is logistic regression.
        rounds: As for `tunefree.train`, like all that follow.
        per_round: Clients per round.
        local_steps: Mini-batch steps of a client per round.
        batch_size: Samples per mini-batch.
        algorithm: The method.
        standardise: Whether features are scaled to mean 0 and deviation 1, by the clients' sums.
        seed: Of initial weights and training.

    Attributes:
        classes_: The labels.
        model_: The trained module, which takes features in their own units.
        history_: A row for each round.

    >>> from sklearn.datasets import load_breast_cancer
    >>> x, y = load_breast_cancer(return_X_y=True)
    >>> hospitals = np.arange(len(y)) % 5
    >>> FederatedClassifier(rounds=20).fit(x, y, groups=hospitals).score(x, y) > 0.9
    True
    """

    def __init__(
        self,
        model: nn.Module | Build | None = None,
        *,
        rounds: int = 100,
        per_round: int | None = None,
        local_steps: int = 10,
        batch_size: int = 16,
        algorithm: str | Maker = "polarfl",
        standardise: bool = True,
        seed: int = 0,
    ) -> None:
        self.model, self.rounds, self.per_round = model, rounds, per_round
        self.local_steps, self.batch_size, self.algorithm = local_steps, batch_size, algorithm
        self.standardise, self.seed = standardise, seed

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> FederatedClassifier:
        """Train; `groups` names the client of each sample, without it there is a single one."""
        X, y = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ConfigError("there is only one class to learn; give samples of two or more")
        owner = np.zeros(len(labels), int) if groups is None else np.asarray(groups)
        check_consistent_length(X, owner)
        data: list[Any] = [X, labels]
        if sample_weight is not None:
            data.append(_check_sample_weight(sample_weight, X, dtype=np.float32))
        samples = tuple(map(torch.as_tensor, data))
        places = {str(name): torch.from_numpy(owner == name) for name in np.unique(owner)}
        run = train(
            seeded(self._build, self.seed),
            {name: tuple(part[mine] for part in samples) for name, mine in places.items()},
            rounds=self.rounds,
            per_round=self.per_round,
            local_steps=self.local_steps,
            batch_size=self.batch_size,
            algorithm=self.algorithm,
            standardise=self.standardise,
            seed=self.seed,
            progress=False,
        )
        self.model_, self.history_ = run.model, run.history
        return self

    def _build(self) -> nn.Module:
        features, classes = self.n_features_in_, len(self.classes_)
        if self.model is None:
            return nn.Linear(features, classes)
        return self.model if isinstance(self.model, nn.Module) else self.model(features, classes)

    @torch.no_grad()
    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """The probability of each class."""
        check_is_fitted(self)
        x = torch.as_tensor(validate_data(self, X, dtype=np.float32, reset=False))
        probabilities: NDArray[np.float64] = self.model_(x).double().softmax(dim=1).numpy()
        return probabilities

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class."""
        probabilities = self.predict_proba(X)  # it refuses an estimator that is not fitted
        predicted: NDArray[Any] = self.classes_[probabilities.argmax(axis=1)]
        return predicted
