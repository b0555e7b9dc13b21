"""The one list of what leaves a client, and what becomes of it under privacy.

It is checked before anything starts: what is neither refused, nor made private, nor free of the
client's data does not leave.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import prod
from typing import NamedTuple, get_args

import torch

from tunefree.core import Algorithm, about, unwrapped
from tunefree.data.samples import Federation
from tunefree.errors import ConfigError
from tunefree.fleet.job import Stage
from tunefree.models.targets import Loss, has_weights
from tunefree.privacy.calls import calls_of
from tunefree.settings import Settings, Unit

PRIVATE = {  # what, and how it is made private
    "uploads": "cut to a fixed norm; the server's method sees only their noisy mean, over a fixed "
    "number",
    "who takes part": "decided by secret coins and kept in the server's run file; or each client's "
    "participations are limited, and the noise is as if everybody knew",
    "how many took part": "the sum is divided by their expected number, and a round without any "
    "releases noise too",
    "whether a norm was cut": "one noisy number per round, paid for with part of the same noise, "
    "moves the threshold",
    "training loss and counts of labels": "neither is computed or stored: scores are those of the "
    "test set",
    "numbers of samples, in replies": "a deployed client sends none, and none are stored",
    "sizes of uploads": "not compared with what is usual, and nobody is put into quarantine: the "
    "bound limits what one client can do",
}
OF_RECORDS = {  # the same where each record is protected
    "gradients": "every one that a method asks for is noisy before it sees it: on mini-batches, on "
    "the same one at two points, over all records",
    "which records are in a batch": "decided by a secret coin for each record and each batch",
    "numbers of records": "a client says that it has one; sums are divided by a public number, and "
    "so count a client as much as it has records",
    "samples used": "the public batch size is counted for each gradient",
    "training loss and counts of labels": "neither is computed or stored: scores are those of the "
    "test set",
}
FREE = {  # what, and why it tells nothing about the client's data
    "sizes of messages": "the same for every client and round: they follow from d",
    "timing, failures and addresses": "of the device, not of its data; whoever watches the network "
    "sees who is asked, so secret coins need a network that nobody watches",
}


class Refused(NamedTuple):
    """What would leave a client of some runs, which are refused.

    Attributes:
        what: What it is.
        reason: Why they are refused; `{title}` is the method.
        remedy: What to do instead.
        found: Whether it would leave a client, with this method and these settings.
        unit: What is protected then, if it matters.
    """

    what: str
    reason: str
    remedy: str
    found: Callable[[Algorithm, Settings], bool]
    unit: Unit | None = None


def is_vector(kind: object) -> bool:
    """Whether a field of an upload is a vector, by its annotation."""
    return any(name in str(kind) for name in ("Vec", "Tensor", "Compressed"))


AVERAGE = "choose a method that averages uploads, such as polarfl_stateless or fedavg"
SCORES = Refused(
    "scores on clients' data",
    "scores that are computed on clients' own data are not private, and neither is what is decided "
    "by them",
    "evaluate on a public test set",
    lambda _, given: given.validation > 0 or given.grad_norm,
)
WEIGHTS = Refused(
    "weights of records",
    "the gradient of every record is brought to one length, so weights of samples or of classes "
    "would do nothing",
    "omit them",
    lambda *_: False,
    "record",
)
ORDERS = Refused(
    "the order of a sampler",
    "a coin decides which records are in a batch, and a DataLoader that does not simply shuffle "
    "all of them has an order of its own",
    "make it with shuffle=True, without a sampler and drop_last",
    lambda *_: False,
    "record",
)
REFUSED = (
    Refused(
        "control variates",
        "clients of {title} upload control variates or momenta in gradients' units, which have no "
        "bound, and its server keeps their mean over all clients",
        AVERAGE,
        lambda method, _: bool(about(method).means),
        "client",
    ),
    Refused(
        "more than a mean of uploads",
        "{title} does not declare that its server uses uploads through their mean only",
        AVERAGE,
        lambda method, _: about(method).weights != "mean",
        "client",
    ),
    Refused(
        "numbers beside vectors",
        "clients of {title} upload single numbers beside vectors, which the noise does not cover",
        AVERAGE,
        lambda method, _: not all(map(is_vector, method.round()[0].Up.__annotations__.values())),
        "client",
    ),
    Refused(
        "gradients of an opening",
        "{title} starts with a pass over all clients' gradients, which have no bound",
        "choose a method without an opening",
        lambda method, _: bool(method.opening()),
        "client",
    ),
    Refused(
        "several uploads in a round",
        "{title} needs two uploads of a client in each round, and one is accounted for",
        "choose another method",
        lambda method, _: len(method.round()) > 1,
        "client",
    ),
    Refused(
        "numbers of samples, as weights",
        "weighting by examples tells how many samples a client has, and no client's weight is "
        "bounded",
        "set {weighting} = uniform",
        lambda method, given: "examples" in (given.weighting, getattr(method, "weighting", "")),
    ),
    Refused(
        "numbers of samples, as odds",
        "sampling by size or by weights gives clients different chances, and the promise is the "
        "same for all",
        "set {sampling} = uniform",
        lambda _, given: given.sampling != "uniform",
    ),
    Refused(
        "numbers of samples, as steps",
        "with local epochs the steps of all clients follow from how many samples each has",
        "give {local_steps} instead of {local_epochs}",
        lambda _, given: given.local_epochs > 0,
    ),
    SCORES,
    Refused(
        "uploads one by one",
        "a robust rule compares single uploads, and only their noisy mean leaves the release",
        "set {robust} = none: the bound on every upload limits what one client can do",
        lambda _, given: given.robust != "none",
        "client",
    ),
    Refused(
        "means and deviations of columns",
        "standardising needs the sums of all clients' inputs, which are not private",
        "scale the data by public numbers, and omit {standardise}",
        lambda _, given: given.standardise,
    ),
    Refused(
        "parts of the model that stay with clients",
        "the model that is scored and handed out has the mean of the parts that clients keep, "
        "which is not private",
        "omit {local} and {batch_norm}",
        lambda _, given: bool(given.local) or given.batch_norm != "refuse",
    ),
    Refused(
        "when a buffered client answers",
        "in the buffered schedule a client's speed decides how often it is in a step",
        "set {schedule} = synchronous",
        lambda _, given: given.schedule == "buffered",
    ),
    Refused(
        "losses of batches",
        "clients of {title} use the loss of a batch, which has no bound and gets no noise",
        "choose a method that uses gradients only",
        lambda method, _: loses(method),
        "record",
    ),
    Refused(
        "gradients that are cut or collected",
        "the gradient of every record is bounded already, and each batch of a step costs privacy",
        "omit {clip_gradients}, and raise {batch_size} instead of {accumulate}",
        lambda _, given: given.accumulate > 1 or given.clip_gradients > 0,
        "record",
    ),
    WEIGHTS,
    ORDERS,
)


def loses(method: Algorithm) -> bool:
    """Whether a client's work uses losses."""
    theta0 = torch.zeros(sum(map(prod, method.shapes or ((1,),))))
    return any(c.losses for s in get_args(Stage) for c in calls_of(method, theta0, s))


def brought(loss: Loss, federation: Federation) -> list[Refused]:
    """What cannot be private in the loss and the data given."""
    found = {
        SCORES: federation.held_out is not None,
        WEIGHTS: has_weights(loss, federation.train.y),
        ORDERS: any(getattr(federation.train, "orders", ())),
    }
    return [each for each, here in found.items() if here]


def refuse(algo: Algorithm, settings: Settings, also: Collection[Refused] = ()) -> None:
    """Refuse a run from which something would leave that is not private; `also` is what would."""
    method = unwrapped(algo)
    for each in REFUSED:
        if each.unit not in (None, settings.unit):
            continue
        if each in also or each.found(method, settings):
            raise ConfigError(
                f"cannot be promised: {each.reason.replace('{title}', about(method).title)}",
                each.remedy,
                setting="epsilon",
                value=settings.epsilon,
            )
