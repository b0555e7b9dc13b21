"""FederatedClassifier does what scikit-learn expects, and trains as `train` does."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator
from torch import nn

import tunefree
from tunefree.errors import ConfigError
from tunefree.models import seeded
from tunefree.sklearn import FederatedClassifier

X, CODES = load_iris(return_X_y=True)
Y = np.array(["setosa", "versicolor", "virginica"])[CODES]
SITES = np.array(["north", "south", "west"])[np.arange(len(Y)) % 3]
FEW: dict[str, Any] = {"rounds": 20, "local_steps": 5}


def test_it_trains_as_train_does() -> None:
    ours = FederatedClassifier(**FEW).fit(X, Y, groups=SITES)
    x, y = torch.tensor(X, dtype=torch.float32), torch.tensor(CODES)
    at = {name: torch.from_numpy(name == SITES) for name in ("north", "south", "west")}
    clients = {name: (x[mine], y[mine]) for name, mine in at.items()}
    model = seeded(lambda: nn.Linear(4, 3), 0)
    run = tunefree.train(model, clients, standardise=True, progress=False, **FEW)
    expected = run.model(x).softmax(dim=1).detach()
    np.testing.assert_allclose(ours.predict_proba(X), expected, rtol=1e-4, atol=1e-6)
    assert ours.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert ours.score(X, Y) == (ours.predict(X) == Y).mean() > 0.8
    assert ours.history_[-1]["round"] == 20
    alone = FederatedClassifier(**FEW).fit(X, Y)
    assert not np.allclose(alone.predict_proba(X), ours.predict_proba(X))


def test_it_is_cloned_pickled_and_searched() -> None:
    given = FederatedClassifier(lambda features, classes: nn.Linear(features, classes), **FEW)
    assert clone(given).get_params()["rounds"] == 20
    fitted = FederatedClassifier(**FEW).fit(X, Y, groups=SITES)
    again = pickle.loads(pickle.dumps(fitted))  # noqa: S301
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    search = GridSearchCV(given, {"local_steps": [1, 5]}, cv=2).fit(X, Y, groups=None)
    assert search.best_params_["local_steps"] == 5


def test_weights_count() -> None:
    only = (CODES > 0).astype(float)
    weighted = FederatedClassifier(**FEW).fit(X, Y, sample_weight=only)
    assert weighted.predict_proba(X)[CODES > 0, 0].mean() < 0.2
    with pytest.raises(ConfigError, match="only one class to learn"):
        FederatedClassifier().fit(X, np.zeros(len(X)))


NOT_APPLICABLE = {
    "check_sample_weight_equivalence_on_dense_data": "mini-batches are drawn from the samples "
    "given, so a repeated sample and one of weight 2 make the same mean and other draws"
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks() -> None:
    checked = check_estimator(
        FederatedClassifier(rounds=30), expected_failed_checks=NOT_APPLICABLE, on_skip=None
    )
    assert sum(each["status"] == "passed" for each in checked) >= 60
    assert {each["check_name"] for each in checked if each["status"] == "xfail"} == {
        *NOT_APPLICABLE
    }
