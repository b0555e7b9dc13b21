"""theta -> scores: on the test set, on the clients' samples, and a user's own measures."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from itertools import starmap
from typing import TypeAlias

import numpy as np
import torch
from torch import nn

from tunefree.core import Vec, mean, norm, stream
from tunefree.data.samples import Federation, Index, Inputs
from tunefree.errors import ConfigError, WireError, refuses_unknown, unknown_name
from tunefree.models.answers import Answer, tensors_in, together
from tunefree.models.objective import EVALUATION_BATCH, Objective, one_thread
from tunefree.models.oracle import DataOracle
from tunefree.models.own import NOBODY, OwnParts
from tunefree.models.targets import any_outputs, right_of, share_of
from tunefree.record.summary import TAKEN, Row

Measure: TypeAlias = Callable[[nn.Module], Mapping[str, float]]  # a user's own scores of a model

TRAINING_SAMPLES = 5_000  # the training loss uses about so many samples, the same every time
LAZY_SAMPLES = 500  # and so many if each must be read for it
AT_ONCE = 2**28  # bytes of answers that a loss gets at once


class Evaluator:
    """Scores models on a federation's test set and on its clients' samples."""

    def __init__(
        self,
        objective: Objective,
        federation: Federation,
        seed: int,
        grad_norm: bool = False,
        own: Measure | None = None,
        private: bool = False,
    ) -> None:
        """`own` is tried at once on the first model: better to fail before training than after.

        Nothing is computed on the clients' samples if it is `private`.
        """
        self._objective, self.federation, self._grad_norm = objective, federation, grad_norm
        self._own = own
        self._looked_at = {} if private else training_sample(federation, seed)
        objective.put(None)
        self._measured(objective.theta0)

    def __call__(self, theta: Vec, own: OwnParts = NOBODY) -> dict[str, float]:
        """`accuracy` and `loss` on the test set, `train_loss` = mean over clients of f_i.

        A client's samples are scored with its own part of the model, if it has one, and the test
        set with the mean of these parts. `client_accuracy` and `client_loss` are the means over
        clients on their held-out data, if there are any.
        """
        small = self._objective.kernels == "batch-minor"
        self._objective.put(own.mean)
        measured = self._measured(theta)
        with one_thread() if small else nullcontext():
            return self._scores(theta, own) | measured

    def clients(self, theta: Vec, own: OwnParts = NOBODY) -> list[Row]:
        """The scores on each client's own training samples."""
        return client_scores(self._objective, theta, self.federation, own)

    def _scores(self, theta: Vec, own: OwnParts) -> dict[str, float]:
        objective, federation = self._objective, self.federation
        scores: dict[str, float] = {}
        if federation.test is not None:
            batches = federation.test.batches(EVALUATION_BATCH)
            scores = scores_on(objective, theta, batches, federation.classes)
        if (held_out := federation.held_out) is not None:
            scores |= summary(client_scores(objective, theta, held_out, own))
        losses = [
            self._loss(theta, index, own(client)) for client, index in self._looked_at.items()
        ]
        wrong = [c for c, f in zip(self._looked_at, losses, strict=True) if not math.isfinite(f)]
        if 0 < len(wrong) < len(losses):
            others = f", and those of {len(wrong) - 1} other clients" if wrong[1:] else ""
            raise WireError(
                f"the loss of client {federation.called(wrong[0])} is not finite{others}, while "
                "that of the rest is: "
                "look at its samples, and at what model and loss do with them"
            )
        if losses:
            scores["train_loss"] = float(np.mean(losses))
        if self._grad_norm:
            scores["grad_norm"] = float(norm(self._gradient(theta, own)))
        return scores

    def _measured(self, theta: Vec) -> dict[str, float]:
        """The user's own measures on a copy of the model; non-finite values are skipped."""
        if self._own is None:
            return {}
        with torch.no_grad():
            try:
                returned = self._own(self._objective.module_at(theta))
            except Exception as error:  # the user's own, which may mean to stop the run by it
                error.add_note(f"raised by your function evaluate = {name_of(self._own)}")
                raise
        found = own_scores(returned)
        return {name: value for name, value in found.items() if math.isfinite(value)}

    def _loss(self, theta: Vec, index: Index, own: Vec | None) -> float:
        self._objective.put(own)
        batches = batches_of(self.federation, index)
        return scores_on(self._objective, theta, batches, classes=None)["loss"]

    def _gradient(self, theta: Vec, own: OwnParts) -> Vec:
        """∇f = mean over all clients of ∇f_i, each over all of its samples."""
        rng, objective, train = stream(0, "gradient norm"), self._objective, self.federation.train

        def gradient(client: int, part: Index) -> Vec:
            objective.put(own(client))
            return DataOracle(objective, train, part, EVALUATION_BATCH, rng).full_grad(theta)

        return mean(starmap(gradient, enumerate(self.federation.parts)))


def name_of(function: Measure) -> str:
    return getattr(function, "__name__", type(function).__name__)


def own_scores(returned: object) -> dict[str, float]:
    """What a user's function returned, after checking names and numbers."""
    if not isinstance(returned, Mapping):
        raise ConfigError(
            f"evaluate returned {returned!r:.80}; it must return a dict of numbers, such as "
            "{'recall': 0.9}"
        )
    for name, value in returned.items():
        if not isinstance(name, str) or name in TAKEN:
            raise ConfigError(
                f"evaluate returned a measure called {name!r}; choose a name other than "
                f"{', '.join(TAKEN)}"
            )
        single = isinstance(value, torch.Tensor) and value.numel() == 1
        if not single and not isinstance(value, numbers.Real):
            raise ConfigError(f"evaluate returned {name} = {value!r:.80}; it must be a number")
    return {name: float(value) for name, value in returned.items()}


def batches_of(federation: Federation, index: Index) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
    cuts = np.split(index, range(EVALUATION_BATCH, len(index), EVALUATION_BATCH))
    return (federation.train.batch(cut) for cut in cuts)


def client_scores(
    objective: Objective, theta: Vec, federation: Federation, own: OwnParts = NOBODY
) -> list[Row]:
    """A row for each client: its number of samples and the model's scores on them."""
    rows = []
    for client, part in enumerate(federation.parts):
        if not len(part):  # it has a single sample, and holds out none
            continue
        objective.put(own(client))
        batches = batches_of(federation, part)
        scores = scores_on(objective, theta, batches, federation.classes)
        rows.append({"client": federation.called(client), "n": len(part), **scores})
    return rows


@refuses_unknown
def spread(rows: Sequence[Row], score: str = "") -> dict[str, float]:
    """How a score differs between clients, equally weighted; by default accuracy, or else loss.

    Args:
        rows: As `Run.client_scores` returns them.
        score: The name of the score.

    >>> spread([{"client": 0, "accuracy": 0.5}, {"client": 1, "accuracy": 1.0}])
    {'mean': 0.75, 'std': 0.25, 'worst_tenth': 0.5, 'worst': 0.5, 'worst_client': 0, ...
    """
    if not rows:
        raise ConfigError("spread was given no rows; give those of Run.client_scores()")
    score = score or ("accuracy" if "accuracy" in rows[0] else "loss")
    if score not in rows[0]:
        raise unknown_name("score", score, rows[0].keys() - {"client", "n"})
    by_value = sorted(rows, key=lambda row: row[score], reverse="loss" in score)
    values = [row[score] for row in rows]
    tenth = [row[score] for row in by_value[: -(-len(rows) // 10)]]
    found = {"mean": float(np.mean(values)), "std": float(np.std(values))}
    found["worst_tenth"] = float(np.mean(tenth))
    for which, row in (("worst", by_value[0]), ("best", by_value[-1])):
        found |= {which: row[score], f"{which}_client": row["client"]}
    return found


def summary(rows: Sequence[Row]) -> dict[str, float]:
    """What a row of the history says of clients' scores on their held-out data."""
    found = {}
    for score in ("accuracy", "loss"):
        if all(score in row for row in rows):
            how = spread(rows, score)
            found[f"client_{score}"] = how["mean"]
            found[f"client_{score}_worst_tenth"] = how["worst_tenth"]
    return found


def training_sample(federation: Federation, seed: int) -> dict[int, Index]:
    """For each client (of very many: for some) a few of its samples, always the same ones."""
    N, most = len(federation), LAZY_SAMPLES if federation.train.lazy else TRAINING_SAMPLES
    rng = stream(seed, "training sample")
    clients = sorted(rng.choice(N, min(N, most), replace=False).tolist())
    each = max(1, most // N)
    return {client: rng.permutation(federation.parts[client])[:each] for client in clients}


@torch.no_grad()
def scores_on(
    objective: Objective,
    theta: Vec,
    batches: Iterable[tuple[Inputs, torch.Tensor]],
    classes: int | None,
) -> dict[str, float]:
    """The loss of all samples at once, and accuracy if there are classes, also two as 0 and 1."""
    loss, weight, n, size = 0.0, 0.0, 0, 0
    right: int | None = 0  # None: there are no classes
    held: list[tuple[Answer, torch.Tensor]] = []  # for a loss that is no mean over samples
    for x, given in batches:
        y = given.to(objective.device)
        answer = objective.answer(theta, x, y)
        n += len(y)
        if right is not None:
            now = right_in(objective, answer, objective.targets(y), classes)
            right = None if now is None else right + now
        share = share_of(objective.reported, y)
        if share is None:
            held.append((answer, y))
            size += sum(each.nbytes for each in tensors_in(answer))
        elif share:  # 0: the loss ignores all of them
            loss, weight = loss + float(objective.reported(answer, y)) * share, weight + share
        if size > AT_ONCE:
            warnings.warn(
                "the outputs of all samples exceed memory, so the loss is computed on parts of "
                f"{sum(len(y) for _, y in held):,} samples and averaged",
                stacklevel=2,
            )
            part, share = of_all(objective, held)
            loss, weight, held, size = loss + part * share, weight + share, [], 0
    if held:
        part, share = of_all(objective, held)
        loss, weight = loss + part * share, weight + share
    scores = {"loss": loss / weight if weight else math.nan}
    return scores if right is None else {"accuracy": right / n} | scores


def right_in(
    objective: Objective, answer: Answer, y: torch.Tensor, classes: int | None
) -> int | None:
    """How many answers are right; None if they are no classes."""
    outputs = any_outputs(answer)
    if outputs is None:
        return None
    if classes is not None:
        return int((outputs.argmax(dim=-1) == y).sum())
    return right_of(objective.reported, outputs, y)


def of_all(objective: Objective, held: Sequence[tuple[Answer, torch.Tensor]]) -> tuple[float, int]:
    """The loss of several batches at once, and their samples."""
    answers, targets = zip(*held, strict=True)
    y = torch.cat(targets)
    try:
        answer = together(answers)
    except (TypeError, RuntimeError):  # an answer that is not made of tensors of samples
        warnings.warn(
            "the model's answers to batches cannot be joined, so the loss is computed on each "
            f"{EVALUATION_BATCH} samples and averaged",
            stacklevel=2,
        )
        return sum(float(objective.reported(a, part)) * len(part) for a, part in held) / len(
            y
        ), len(y)
    return float(objective.reported(answer, y)), len(y)
