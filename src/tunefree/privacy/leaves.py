"""The one list of what leaves a client, and what becomes of it under client-level privacy.

It is checked before anything starts: what is neither refused, nor made private, nor free of the
client's data does not leave.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tunefree.core import Algorithm, about, unwrapped
from tunefree.errors import ConfigError
from tunefree.privacy.promise import Privacy
from tunefree.settings import Deployment, Settings


class Asked(NamedTuple):
    """A run that someone wants to be private."""

    privacy: Privacy
    algo: Algorithm
    settings: Settings
    deployment: Deployment | None = None  # None: a simulation


class Leaves(NamedTuple):
    """Something that leaves a client.

    Attributes:
        what: What it is.
        fate: "refused", "private" or "free" of the client's data.
        reason: Why; of what is refused, the sentence that the user reads.
        remedy: What to do instead.
        found: Whether a run would let it out, if it is refused.
    """

    what: str
    fate: str
    reason: str
    remedy: str = ""
    found: Callable[[Asked], bool] = lambda asked: False


def more_than_the_mean(asked: Asked) -> bool:
    method = unwrapped(asked.algo)
    return about(method).weights != "mean" and not hasattr(method, "weighting")


def by_examples(asked: Asked) -> bool:
    weighting = getattr(unwrapped(asked.algo), "weighting", asked.settings.weighting)
    return "examples" in (weighting, asked.settings.weighting)


LEAVES = (
    Leaves(
        "uploads",
        "private",
        "cut to a fixed norm; the server's method sees only their noisy mean, over a fixed number",
    ),
    Leaves(
        "who takes part",
        "private",
        "decided by secret coins and kept in the server's run file; or each client's "
        "participations are limited, and the noise is as if everybody knew",
    ),
    Leaves(
        "how many took part",
        "private",
        "the sum is divided by their expected number, and a round without any releases noise too",
    ),
    Leaves(
        "whether a norm was cut",
        "private",
        "one noisy number per round, paid for with part of the same noise, moves the threshold",
    ),
    Leaves(
        "control variates",
        "refused",
        "clients of {title} upload control variates or momenta in gradients' units, which have no "
        "bound, and its server keeps their mean over all clients",
        "choose a method that averages uploads, such as polarfl_stateless or fedavg",
        lambda asked: bool(about(asked.algo).means),
    ),
    Leaves(
        "more than a mean of uploads",
        "refused",
        "{title} does not declare that its server uses uploads through their mean only",
        "choose a method that averages uploads, such as polarfl_stateless or fedavg",
        more_than_the_mean,
    ),
    Leaves(
        "gradients of an opening",
        "refused",
        "{title} starts with a pass over all clients' gradients, which have no bound",
        "choose a method without an opening",
        lambda asked: bool(asked.algo.opening()),
    ),
    Leaves(
        "several uploads in a round",
        "refused",
        "{title} needs two uploads of a client in each round, and one is accounted for",
        "choose another method",
        lambda asked: len(asked.algo.round()) > 1,
    ),
    Leaves(
        "numbers of samples, as weights",
        "refused",
        "weighting by examples tells how many samples a client has, and no client's weight is "
        "bounded",
        "set {weighting} = uniform",
        by_examples,
    ),
    Leaves(
        "numbers of samples, as odds",
        "refused",
        "sampling by size or by weights gives clients different chances, and the promise is the "
        "same for all",
        "set {sampling} = uniform",
        lambda asked: asked.settings.sampling != "uniform",
    ),
    Leaves(
        "numbers of samples, as steps",
        "refused",
        "with local epochs the steps of all clients follow from how many samples each has",
        "give {local_steps} instead of {local_epochs}",
        lambda asked: asked.settings.local_epochs > 0,
    ),
    Leaves(
        "scores on clients' data",
        "refused",
        "scores that are computed on clients' own data are not private, and neither is what is "
        "decided by them",
        "evaluate on a public test set",
        lambda asked: (
            asked.settings.validation > 0
            or asked.settings.grad_norm
            or (asked.deployment is not None and asked.deployment.evaluate_on_clients)
        ),
    ),
    Leaves(
        "when a buffered client answers",
        "refused",
        "in the buffered schedule a client's speed decides how often it is in a step",
        "set {schedule} = synchronous",
        lambda asked: asked.settings.schedule == "buffered",
    ),
    Leaves(
        "training loss and counts of labels",
        "private",
        "neither is computed or stored: scores are those of the test set",
    ),
    Leaves(
        "records of a client, one by one",
        "refused",
        "unit = 'record' is not available yet",
        "protect clients: unit = 'client'",
        lambda asked: asked.privacy.unit == "record",
    ),
    Leaves("sizes of messages", "free", "the same for every client and round: they follow from d"),
    Leaves(
        "timing, failures and addresses",
        "free",
        "of the device, not of its data; whoever watches the network sees who is asked, so secret "
        "coins need a network that nobody watches",
    ),
)


def refuse(asked: Asked) -> None:
    """Refuse a run from which something would leave that is not private."""
    for each in LEAVES:
        if each.fate == "refused" and each.found(asked):
            title = about(unwrapped(asked.algo)).title
            raise ConfigError(
                f"cannot be promised: {each.reason.replace('{title}', title)}",
                each.remedy,
                setting="epsilon",
                value=asked.privacy.epsilon,
            )
