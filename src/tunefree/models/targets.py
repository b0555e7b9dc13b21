"""Which loss goes with a model's outputs and the targets, before anything is trained.

Targets are changed only where their meaning is clear, and two shapes are never broadcast against
each other: ambiguous targets are refused, with an error that says how to resolve it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast

import torch
from torch import nn
from torch.nn import functional

from tunefree.data.samples import Federation, Inputs, Samples, Targets, each, identity
from tunefree.errors import ConfigError
from tunefree.models.answers import (
    Answer,
    check_module,
    copy_of,
    device_of,
    entry,
    loss_of_model,
    outputs_of,
    takes_labels,
    tried,
)

Loss: TypeAlias = Callable[[Answer, torch.Tensor], torch.Tensor]  # the model's answer, the targets

TRIED = 16  # samples
OF_LABELS = (functional.cross_entropy, functional.nll_loss, nn.CrossEntropyLoss, nn.NLLLoss)
OF_LOGITS = (functional.binary_cross_entropy_with_logits, nn.BCEWithLogitsLoss)
OF_PROBABILITIES = (functional.binary_cross_entropy, nn.BCELoss)
BY_ELEMENT = (
    *OF_LOGITS,
    *OF_PROBABILITIES,
    functional.mse_loss,
    functional.l1_loss,
    functional.smooth_l1_loss,
    functional.huber_loss,
    functional.poisson_nll_loss,
    nn.MSELoss,
    nn.L1Loss,
    nn.SmoothL1Loss,
    nn.HuberLoss,
    nn.PoissonNLLLoss,
)
HALVES = (torch.float16, torch.bfloat16)


class LearningTask(NamedTuple):
    """What is to be learned: the loss, the number of classes, and the targets."""

    loss: Loss
    classes: int | None = None  # None: not a classification, and no accuracy
    targets: Targets = identity

    def of(self, federation: Federation) -> Federation:
        """The federation with its targets as the loss needs them."""
        test = federation.test
        return replace(
            federation,
            train=federation.train.with_targets(self.targets),
            test=None if test is None else test.with_targets(self.targets),
            classes=self.classes,
            held_out=None if federation.held_out is None else self.of(federation.held_out),
        )


def task_of(module: nn.Module, samples: Samples, loss: Loss | None = None) -> LearningTask:
    """The task of this model on these samples, with the loss given or the one that fits.

    Without a loss it is the model's own, if it returns one; else cross-entropy for labels and mean
    squared error for real targets. Losses of torch.nn and torch.nn.functional get the outputs, and
    the targets in the shape they need; any other function gets what the model returned, and the
    targets as they are.
    """
    check_module(module)
    check_loss(loss)
    if loss is None and callable(getattr(module, "training_step", None)):
        raise ConfigError(
            "the model has a training_step, as Lightning's have, and only its forward is used: "
            "pass the loss of that step with loss=...; its optimiser is not needed"
        )
    module = copy_of(module).eval()
    x, y = samples.batch(slice(0, TRIED))
    answer = tried(module, x, y)
    if loss is None:
        task = models_task(module, answer, x, y, samples.y)
        task = task or default_task(outputs_in(answer, y), samples.y)
    elif is_one_of(loss, OF_LABELS):
        outputs = outputs_in(answer, y)
        found = labels(outputs, samples.y)
        refuse_one_output(outputs, samples.y)
        task = LearningTask(loss) if found is None else LearningTask(loss, outputs.shape[1], found)
    elif is_one_of(loss, BY_ELEMENT):
        task = LearningTask(loss, None, like(outputs_in(answer, y), samples.y))
    else:
        check_broadcast(loss, answer, y.to(device_of(module)))
        return LearningTask(loss, classes_seen(answer, samples.y))
    if task.loss is not loss_of_model and not plain(module, answer, x, y):
        task = task._replace(loss=OnOutputs(task.loss, outputs_of(answer).dim()))
    return task


def plain(module: nn.Module, answer: Answer, x: Inputs, y: torch.Tensor) -> bool:
    """Whether the answer is just the outputs in full precision, also for one sample."""
    if not isinstance(answer, torch.Tensor) or answer.dtype in HALVES:
        return False
    try:
        one = tried(module, each(lambda x: x[:1], x), y[:1])
    except ConfigError:  # trying the whole objective will raise it again
        return True
    return isinstance(one, torch.Tensor) and one.dim() == answer.dim()


@dataclass(frozen=True)
class OnOutputs:
    """One of torch's losses for a model that returns more than outputs, or half precision."""

    loss: Loss
    axes: int  # of the outputs; a model that squeezes drops the first for one sample

    def __call__(self, answer: Answer, y: torch.Tensor) -> torch.Tensor:
        outputs = outputs_of(answer)
        outputs = outputs if outputs.dim() == self.axes else outputs.unsqueeze(0)
        return self.loss(outputs.float() if outputs.dtype in HALVES else outputs, y)


@dataclass(frozen=True)
class Weighted:
    """One of torch's losses with a weight for each sample, the first column of the targets.

    In training it is divided by the number of samples, as a client's weights have mean 1;
    `overall`, for what is reported, by the sum of the weights.
    """

    each: Loss  # of each sample
    shape: tuple[int, ...]  # of one sample's targets
    dtype: torch.dtype
    overall: bool = False

    def __call__(self, answer: Answer, given: torch.Tensor) -> torch.Tensor:
        losses = self.each(answer, self.targets(given)).reshape(len(given), -1).mean(dim=1)
        w = given[:, 0].to(losses.dtype)
        return (w * losses).sum() / (w.sum() if self.overall else len(w))

    def targets(self, given: torch.Tensor) -> torch.Tensor:
        return given[:, 1:].reshape(len(given), *self.shape).to(self.dtype)


def weighted(loss: Loss, federation: Federation) -> tuple[Loss, Federation]:
    """The loss with the samples' weights, and the federation whose batches have them."""
    if federation.weights is None:
        return loss, federation
    y = federation.train.y
    return Weighted(of_each(loss), shape_of(y), y.dtype), with_weights(federation)


def with_weights(federation: Federation) -> Federation:
    """The federation whose batches have the weights of their samples, 1 where none are given."""
    train, test, held_out = federation.train, federation.test, federation.held_out
    mine, theirs = federation.weights or (torch.ones(len(train)), None)
    if test is not None:
        test = replace(test, weights=torch.ones(len(test)) if theirs is None else theirs)
    held_out = None if held_out is None else with_weights(held_out)
    return replace(federation, train=replace(train, weights=mine), test=test, held_out=held_out)


def of_each(loss: Loss) -> Loss:
    """The loss of every sample, not their mean."""
    if isinstance(loss, OnOutputs):
        return replace(loss, loss=of_each(loss.loss))
    if isinstance(loss, InDeviations):
        return replace(loss, given=of_each(loss.given))
    bound, each = bound_in(loss), cast("Any", loss)
    means = bound.get("reduction", "mean") == "mean" and bound.get("weight") is None
    if not means or not is_one_of(loss, OF_LABELS + BY_ELEMENT):
        raise ConfigError(
            "the samples have weights, which need one of torch's losses with reduction='mean' and "
            "without class weights; pass such a loss, or omit the weights"
        )
    if not isinstance(loss, nn.Module):
        return partial(each, reduction="none")
    each = cast("Any", copy_of(loss))
    each.reduction = "none"
    return cast("Loss", each)


def bound_in(loss: Loss) -> dict[str, Any]:
    """The arguments that one of torch's losses was made with."""
    if isinstance(loss, nn.Module):
        return {**vars(loss), **dict(loss.named_buffers())}
    return dict(loss.keywords) if isinstance(loss, partial) else {}


def has_weights(loss: Loss, y: torch.Tensor) -> bool:
    """Whether samples have weights of their own, or their classes if each has one target."""
    while isinstance(loss, OnOutputs | InDeviations):
        loss = loss.loss if isinstance(loss, OnOutputs) else loss.given
    given, one = bound_in(loss), y[0].numel() == 1
    of_classes = any(given.get(name) is not None for name in ("weight", "pos_weight"))
    return isinstance(loss, Weighted) or (one and of_classes)


@dataclass(frozen=True)
class InDeviations:
    """A loss of outputs and targets in original units, computed in units of their deviation."""

    given: Loss
    mean: torch.Tensor
    deviation: torch.Tensor

    def __call__(self, answer: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.given((answer - self.mean) / self.deviation, (y - self.mean) / self.deviation)


def models_task(
    module: nn.Module, answer: Answer, x: Inputs, y: torch.Tensor, all_y: torch.Tensor
) -> LearningTask | None:
    """The task of a model that computes its own loss when given the labels."""
    outputs = any_outputs(answer)
    found = None if outputs is None else labels(outputs, all_y)
    task = LearningTask(loss_of_model)
    if found is not None and outputs is not None:
        task = LearningTask(loss_of_model, outputs.shape[1], found)
    if takes_labels(module):
        answer = tried(module, x, task.targets(y), labels=True)
    return task if entry(answer, "loss") is not None else None


def default_task(outputs: torch.Tensor, y: torch.Tensor) -> LearningTask:
    """Cross-entropy for labels, also one-hot ones, and mean squared error for real targets."""
    found = labels(outputs, y)
    if found is None and outputs.dim() == 2 and y.shape[1:] == outputs.shape[1:] and is_one_hot(y):
        found = Labels(one_hot=True)
    if found is not None:
        return LearningTask(functional.cross_entropy, outputs.shape[1], found)
    refuse_one_output(outputs, y)
    if not y.is_floating_point():
        if y.dim() > 1 and y.shape[1:] == outputs.shape[2:]:
            raise ConfigError(
                f"the targets are whole numbers, one for each of {shape_of(y)} places: if they are "
                "classes, pass loss=torch.nn.CrossEntropyLoss()"
            )
        if y.dim() > 1 and shape_of(y) == shape_of(outputs)[:-1]:
            raise ConfigError(
                f"the targets are whole numbers, one for each of {shape_of(y)} places, and the "
                "outputs' last axis may be classes: if so, pass loss=lambda outputs, y: "
                "torch.nn.functional.cross_entropy(outputs.movedim(-1, 1), y)"
            )
        raise ConfigError(
            f"the targets are whole numbers of shape {shape_of(y)} for each sample and the outputs "
            f"have shape {shape_of(outputs)}; for regression give the targets as floats, for "
            "classes a label for each sample, or pass the loss you mean with loss=..."
        )
    if bool(((y == 0) | (y == 1)).all()):
        raise ConfigError(
            "the targets are only 0 and 1: for classes, of which each sample may have several, "
            "pass loss=torch.nn.BCEWithLogitsLoss(), and for numbers to predict "
            "loss=torch.nn.MSELoss()"
        )
    if y.dim() == 2 and y.shape[1] > 1 and bool((y >= 0).all()):
        sums = y.sum(dim=1)
        if torch.allclose(sums, torch.ones_like(sums), atol=1e-4):
            raise ConfigError(
                "the targets of every sample add up to one: pass "
                "loss=torch.nn.functional.cross_entropy if they are probabilities of classes, or "
                "loss=torch.nn.functional.mse_loss if they are numbers to predict"
            )
    return LearningTask(functional.mse_loss, None, like(outputs, y))


def default_loss(classes: int | None) -> Loss:
    """Cross-entropy for labels, mean squared error for real targets."""
    return functional.mse_loss if classes is None else functional.cross_entropy


@dataclass(frozen=True)
class Labels:
    """Targets that encode classes in another form, as labels."""

    one_hot: bool = False

    def __call__(self, y: torch.Tensor) -> torch.Tensor:
        if self.one_hot:
            if not is_one_hot(y):
                raise ConfigError("some targets are one-hot and others not; give all in one form")
            return y.argmax(dim=1)
        if not is_whole(y):
            raise ConfigError(
                f"the targets are labels, except {float(y[y != y.round()][0]):g}; give only "
                "whole numbers"
            )
        return y.reshape(len(y)).long()


@dataclass(frozen=True)
class Like:
    """Targets in the shape of the outputs; whole numbers are converted to their type."""

    shape: tuple[int, ...]  # of one sample's
    dtype: torch.dtype

    def __call__(self, y: torch.Tensor) -> torch.Tensor:
        y = y if y.is_floating_point() else y.to(self.dtype)
        return y.reshape(len(y), *self.shape)


def labels(outputs: torch.Tensor, y: torch.Tensor) -> Targets | None:
    """How the targets become labels of the outputs' classes, if that is what they are."""
    one_each = shape_of(y) in ((), (1,))
    if outputs.dim() != 2 or outputs.shape[1] < 2 or not one_each or not is_whole(y):
        return None
    plain = y.dim() == 1 and y.dtype == torch.int64
    return identity if plain else Labels()


def like(outputs: torch.Tensor, y: torch.Tensor) -> Targets:
    """How the targets take the outputs' shape, where only axes of length one differ."""
    ours, theirs = shape_of(y), shape_of(outputs)
    if [n for n in ours if n != 1] != [n for n in theirs if n != 1]:
        raise ConfigError(
            f"the targets have shape {ours} for each sample and the model's outputs have shape "
            f"{theirs}; give the model as many outputs as there are targets, or whole numbers from "
            "0 if the targets are labels of classes"
        )
    if ours == theirs and y.is_floating_point():
        return identity
    return Like(theirs, torch.float32 if outputs.dtype in HALVES else outputs.dtype)


def classes_seen(answer: Answer, y: torch.Tensor) -> int | None:
    """With the user's own loss: the number of classes, if the targets can only be labels."""
    outputs = any_outputs(answer)
    if outputs is None or labels(outputs, y) is not identity:
        return None
    classes = int(outputs.shape[1])
    return classes if bool(((y >= 0) & (y < classes)).all()) else None


def refuse_one_output(outputs: torch.Tensor, y: torch.Tensor) -> None:
    one_each = shape_of(y) in ((), (1,)) and shape_of(outputs) in ((), (1,))
    if one_each and not y.is_floating_point():
        raise ConfigError(
            "the targets are whole numbers and the model has one output: for regression give the "
            "targets as floats, y.float(); for two classes pass "
            "loss=torch.nn.BCEWithLogitsLoss(), or give the model two outputs"
        )


def check_loss(loss: object) -> None:
    """Refuse a loss that cannot be called, or has trainable parameters."""
    if isinstance(loss, type):
        raise ConfigError(f"loss is the class {loss.__name__}; give loss={loss.__name__}()")
    if loss is not None and not callable(loss):
        raise ConfigError(
            f"loss = {loss!r:.80} is not a function; give one of outputs and targets, such as "
            "torch.nn.functional.mse_loss"
        )
    if isinstance(loss, nn.Module) and any(p.requires_grad for p in loss.parameters()):
        raise ConfigError(
            f"loss = {type(loss).__name__} has trainable parameters, and only the model's are "
            "trained; make it part of the model"
        )


def check_broadcast(loss: Loss, answer: Answer, y: torch.Tensor) -> None:
    """Refuse a user's loss that mixes samples by broadcasting two different shapes."""
    if not isinstance(answer, torch.Tensor) or answer.shape == y.shape or len(y) < 2:
        return
    if answer.numel() != y.numel() or len(answer) != len(y):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            whole = loss(answer, y)
            pairs = zip(torch.split(answer, 1), torch.split(y, 1), strict=True)
            alone = torch.stack([loss(one, target) for one, target in pairs])
            apart = torch.stack([alone.mean(), alone.sum()])
            same = torch.isclose(apart, whole, rtol=1e-3, atol=1e-6).any()
        except Exception:  # trying a batch will raise it again
            return
    if not same:
        raise ConfigError(
            f"the loss mixes samples, as outputs of shape {tuple(answer.shape)} and targets of "
            f"shape {tuple(y.shape)} are broadcast against each other; give the targets the "
            "outputs' shape, for example y.unsqueeze(1)"
        )


def outputs_in(answer: Answer, y: torch.Tensor) -> torch.Tensor:
    """The answer's outputs, after checking that there is one per sample."""
    outputs = outputs_of(answer)
    if not outputs.dim() or len(outputs) != len(y):
        raise ConfigError(
            f"the model gives outputs of shape {tuple(outputs.shape)} for {len(y)} samples; their "
            "first axis must be the samples"
        )
    return outputs


def any_outputs(answer: Answer) -> torch.Tensor | None:
    try:
        return outputs_of(answer)
    except ConfigError:
        return None


def shape_of(values: torch.Tensor) -> tuple[int, ...]:
    """The shape of one sample."""
    return tuple(values.shape[1:])


def is_whole(y: torch.Tensor) -> bool:
    return not y.is_floating_point() or bool((y == y.round()).all())


def is_one_hot(y: torch.Tensor) -> bool:
    """Whether in every sample one number is 1 and all others are 0."""
    if y.dim() != 2 or y.shape[1] < 2:
        return False
    return bool(((y == 0) | (y == 1)).all()) and bool((y.sum(dim=1) == 1).all())


def share_of(loss: Loss, y: torch.Tensor) -> float | None:
    """What a batch counts in the loss of all samples; None if that is no mean over batches.

    Cross-entropy counts class weights, and no labels that it ignores. A model's own loss counts as
    a mean over samples.
    """
    if isinstance(loss, Weighted):
        return float(y[:, 0].sum())
    loss = loss.loss if isinstance(loss, OnOutputs) else loss
    bound = bound_in(loss)
    known = loss is loss_of_model or is_one_of(loss, OF_LABELS + BY_ELEMENT)
    if not known or bound.get("reduction", "mean") != "mean":
        return None
    if y.is_floating_point() or not is_one_of(loss, OF_LABELS):
        return len(y)
    counted = y[y != bound.get("ignore_index", -100)]
    weight = bound.get("weight")
    return counted.numel() if weight is None else float(weight[counted].sum())


def right_of(loss: Loss, outputs: torch.Tensor, y: torch.Tensor) -> int | None:
    """How many answers are right, if the loss is binary cross-entropy for one output."""
    loss = loss.each if isinstance(loss, Weighted) else loss
    single = outputs.shape == y.shape and outputs[:1].numel() == 1
    if not single or not bool(((y == 0) | (y == 1)).all()):
        return None
    loss = loss.loss if isinstance(loss, OnOutputs) else loss
    for known, middle in ((OF_LOGITS, 0.0), (OF_PROBABILITIES, 0.5)):
        if is_one_of(loss, known):
            return int(((outputs > middle) == (y > 0.5)).sum())
    return None


def is_one_of(loss: Loss, known: tuple[object, ...]) -> bool:
    """Whether it is one of these functions, perhaps with bound arguments, or classes."""
    while isinstance(loss, partial):
        loss = loss.func
    return loss in known or type(loss) in known
