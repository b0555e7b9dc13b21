"""Sums in place of uploads: what a server learns if it learns no upload, and what it needs for it.

A field with a bound of the method's is scaled by that bound. Any other is scaled by a power of two
above all clients' largest numbers: each client tells the exponent of its own, and all use the
largest. A server thus learns, of each client, how large its largest number is, to a factor of two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, get_type_hints

import numpy as np
import torch
from numpy.typing import NDArray

from tunefree.core import Algorithm, Message, Vec, about, unwrapped
from tunefree.errors import ConfigError, WireError
from tunefree.fleet.job import ClientStates, Done, Fleet, Job, exchanges
from tunefree.secure.arithmetic import Words, from_integers, threshold, to_integers
from tunefree.secure.messages import LEAST, Terms
from tunefree.secure.sizes import beside
from tunefree.settings import Settings
from tunefree.wire.message import fault

Exponents: TypeAlias = tuple[int, ...]  # one per field
ZERO = -200  # the exponent of a field of zeros


class Form(NamedTuple):
    """How the uploads of an exchange are written as integers."""

    Up: Any
    like: Vec
    bounds: tuple[float, ...]  # 0 for a field without one

    @classmethod
    def of(cls, algo: Algorithm, job: Job, like: Vec, bound: float = 0.0) -> Form:
        """`bound` is that of all fields together, if noise will be added to the sum."""
        Up: Any = exchanges(algo, job.stage, job.t)[job.exchange].Up
        bounds = (float(bound or about(algo).bounds.get(name, 0)) for name in Up._fields)
        return cls(Up, like, tuple(bounds))

    def terms(self, clients: int) -> Terms:
        """What the server invites so many clients to."""
        hints = get_type_hints(self.Up)
        counts = (self.like.numel() if hint is torch.Tensor else 1 for hint in hints.values())
        return Terms(clients, 0.0, tuple(counts), tuple(bound or 1.0 for bound in self.bounds))

    def check(self, up: Message) -> None:
        """Refuse an upload that the method's server would not use; behind a mask it cannot."""
        if why := self.fault(up):
            raise WireError(f"its own upload cannot be used: {why}")

    def fault(self, up: Message) -> str:
        bounds = {name: b for name, b in zip(self.Up._fields, self.bounds, strict=True) if b}
        return fault(up, self.Up, self.like, bounds)

    def values(self, up: Message) -> list[NDArray[Any]]:
        """The numbers of an upload, an array per field."""
        return [np.atleast_1d(np.asarray(v.cpu() if hasattr(v, "cpu") else v)) for v in up]

    def exponents(self, up: Message) -> Exponents:
        """For each field an e so that its numbers are below 2^e; 0 if it has a bound."""
        most = [float(np.abs(value).max(initial=0)) for value in self.values(up)]
        found = (int(np.frexp(m)[1]) if m else ZERO for m in most)
        return tuple(0 if b else e for e, b in zip(found, self.bounds, strict=True))

    def mean(self, total: Words, exponents: Exponents, terms: Terms, count: int) -> Message:
        """The mean of so many uploads whose integers have this sum."""
        fields = []
        sums = from_integers(total, terms)
        for value, e, hint in zip(sums, exponents, get_type_hints(self.Up).values(), strict=True):
            value = np.ldexp(value, e) / count
            vector = hint is torch.Tensor
            fields.append(torch.from_numpy(value).to(self.like) if vector else float(value[0]))
        return self.Up(*fields)


def integers(values: Sequence[NDArray[Any]], exponents: Exponents, terms: Terms) -> Words:
    """An upload as words; what exceeds its bound, or the agreed exponent, is a WireError."""
    scaled = [np.ldexp(v, -e) for v, e in zip(values, exponents, strict=True)]
    return to_integers(scaled, terms)


def largest(told: Sequence[Exponents]) -> Exponents:
    """The exponents that all use."""
    return tuple(map(max, *told)) if len(told) > 1 else told[0]


class Summed:
    """A fleet whose replies are all their mean, from the same integers as in a secure sum."""

    def __init__(self, fleet: Fleet, algo: Algorithm, like: Vec) -> None:
        self._fleet, self._algo, self._like = fleet, algo, like

    @property
    def states(self) -> ClientStates:
        return self._fleet.states

    def work(self, jobs: Sequence[Job]) -> Sequence[Done]:
        done = self._fleet.work(jobs)
        if not jobs:
            return done
        form = Form.of(self._algo, jobs[0], self._like)
        why = [each.fault or form.fault(each.up) for each in done]
        good = [each for each, reason in zip(done, why, strict=True) if not reason]
        n = len(jobs) if len(good) >= threshold(len(jobs)) else len(good)  # it is repeated
        if len(good) < LEAST:
            few = f"{len(good)} clients are too few for a secure sum, which needs {LEAST}"
            return [Done(e.key, None, 0, 0, r or few) for e, r in zip(done, why, strict=True)]
        terms = form.terms(n)
        agreed = largest([form.exponents(each.up) for each in good])
        total = np.zeros(sum(terms.counts), np.uint32)
        for each in good:
            total += integers(form.values(each.up), agreed, terms)
        mean = form.mean(total, agreed, terms, len(good))
        keys, extra = {each.key for each in good}, beside(n, len(good), len(agreed))
        return [
            Done(e.key, mean, 1, e.drawn, "", extra) if e.key in keys else e._replace(fault=r)
            for e, r in zip(done, why, strict=True)
        ]

    def close(self) -> None:
        self._fleet.close()


class Refused(NamedTuple):
    """What a run with secure sums cannot have, and why."""

    reason: str
    remedy: str
    found: Callable[[Algorithm, Settings], bool]


AVERAGE = "choose a method that averages uploads, such as polarfl or fedavg"
REFUSED = (
    Refused(
        "a compressed upload cannot be added up behind a mask",
        "omit {compressor}, or choose a method without one",
        lambda algo, _: any("Compressed" in str(Up.__annotations__) for Up in ups(algo)),
    ),
    Refused(
        "uploads of {title} contain lists of numbers, and vectors and single numbers are added up",
        AVERAGE,
        lambda algo, _: any("Numbers" in str(Up.__annotations__) for Up in ups(algo)),
    ),
    Refused(
        "a robust rule compares single uploads, and only their sum is there",
        "set {robust} = none",
        lambda _, given: given.robust != "none",
    ),
    Refused(
        "weighting by examples needs every client's number of samples",
        "set {weighting} = uniform",
        lambda algo, given: "examples" in (given.weighting, getattr(algo, "weighting", "")),
    ),
    Refused(
        "{title} does not declare that its server uses uploads only through their mean and number",
        AVERAGE,
        lambda algo, _: about(algo).summed is None,
    ),
    Refused(
        "in the buffered schedule uploads come one by one, and a sum needs them together",
        "set {schedule} = synchronous",
        lambda _, given: given.schedule == "buffered",
    ),
    Refused(
        "the server would be told how many samples each client has",
        "give {local_steps}, and {sampling} = uniform",
        lambda _, given: given.local_epochs > 0 or given.sampling == "examples",
    ),
    Refused(
        f"a sum of fewer than {LEAST} uploads hides nobody",
        f"raise {{per_round}}, or if that is 0 {{clients}}, to {LEAST} or more",
        lambda algo, _: algo.sys.S < LEAST,
    ),
    Refused(
        "with {epsilon}, the uploads of {title} would have to be cut on the clients",
        "choose polarfl_stateless, whose uploads have a bound, or omit {epsilon}",
        lambda algo, given: (
            given.epsilon > 0 and not set(ups(algo)[0]._fields) <= about(algo).bounds.keys()
        ),
    ),
)


def ups(algo: Algorithm) -> list[Any]:
    return [exchange.Up for exchange in (*algo.opening(), *algo.round())]


def refuse(algo: Algorithm, settings: Settings) -> None:
    """Refuse a run whose server needs more of its clients than sums, before anything starts."""
    method = unwrapped(algo)
    for reason, remedy, found in REFUSED if settings.secure else ():
        if found(method, settings):
            raise ConfigError(
                f"is not possible here: {reason.replace('{title}', about(method).title)}",
                remedy,
                setting="secure",
                value=True,
            )
