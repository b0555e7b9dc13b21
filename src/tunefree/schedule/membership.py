"""Which clients take part: who is available, who is joining, and who has lost its state."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from tunefree.core import Algorithm, Generator, Server, System, stream
from tunefree.errors import ConfigError, WireError
from tunefree.fleet.job import Done, Job
from tunefree.schedule.exchange import Step
from tunefree.schedule.gauge import Gauge
from tunefree.settings import Sampling

Odds: TypeAlias = Sequence[float] | None  # sampling probability of each client; None: uniform


class Membership(Protocol):
    """The clients of a run."""

    @property
    def gauge(self) -> Gauge:
        """How large their uploads are, and who is quarantined."""

    @property
    def algo(self) -> Algorithm:
        """The algorithm for as many clients as there are now."""

    def cohort(self, t: int) -> list[int]:
        """The clients of a synchronous round, in client order."""

    def joining(self, server: Server, t: int) -> list[Job]:
        """The openings of clients that join during step t, each returned once."""

    def admit(self, step: Step, joined: Sequence[tuple[Job, Done]]) -> Step:
        """The step, including clients that joined while it ran."""

    def facts(self) -> Mapping[str, object]:
        """What has changed since the last call and belongs in the run file."""

    def silence(self, step: Step, steps: int, called: Callable[[int], str]) -> Exception:
        """Why the run ends after this many steps without a reply."""


def cohort(seed: int, t: int, sys: System, odds: Odds = None) -> list[int]:
    """S distinct clients, drawn anew at every step, uniformly or by odds, in client order.

    >>> cohort(seed=0, t=0, sys=System(N=3, S=3, K=1, T=1))
    [0, 1, 2]
    """
    chosen = stream(seed, "cohort", t).choice(sys.N, sys.S, replace=False, p=odds)
    return sorted(chosen.tolist())


def draw(rng: Generator, clients: Sequence[int], count: int, odds: Sequence[float]) -> list[int]:
    """`count` distinct clients of these, drawn one after the other by their odds.

    >>> draw(stream(0, "doc"), [1, 3], 2, odds=[0.2, 0.2, 0.1, 0.5])
    [3, 1]
    """
    p = np.array([odds[client] for client in clients])
    places = rng.choice(len(clients), count, replace=False, p=p / p.sum())
    return [clients[place] for place in places]


class Everybody:
    """A simulation's clients: all N, always available."""

    def __init__(
        self,
        algo: Algorithm,
        seed: int,
        sampling: Sampling = "uniform",
        sizes: Sequence[int] = (),
        judges: bool = True,
    ) -> None:
        """`sizes` are the clients' numbers of samples, for sampling that is not uniform."""
        self.algo, self.seed, self.gauge = algo, seed, Gauge(judges)
        self.odds = probabilities(sampling, sizes)

    def cohort(self, t: int) -> list[int]:
        """As drawn, but clients in quarantine are replaced by others."""
        drawn = cohort(self.seed, t, self.algo.sys, self.odds)
        if not (out := self.gauge.out(t)):
            return drawn
        spare = sorted(set(range(self.algo.sys.N)) - {*drawn, *out})
        stream(self.seed, "substitute", t).shuffle(spare)
        stay = [client for client in drawn if client not in out]
        return sorted(stay + spare[: len(drawn) - len(stay)])

    def joining(self, server: Server, t: int) -> list[Job]:
        return []

    def admit(self, step: Step, joined: Sequence[tuple[Job, Done]]) -> Step:
        return step

    def facts(self) -> Mapping[str, object]:
        return {}

    def silence(self, step: Step, steps: int, called: Callable[[int], str]) -> Exception:
        if not step.absent:
            return WireError(
                "all clients are in quarantine because their uploads were refused; readmit those "
                "that you trust: tunefree run --resume RUN --readmit CLIENT"
            )
        last = step.absent[-1]
        return WireError(
            f"no reply could be used for {steps} steps in a row, the last because client "
            f"{called(last.client)} at t = {step.t}: {last.reason}; training has diverged"
        )


def probabilities(sampling: Sampling, sizes: Sequence[int]) -> list[float] | None:
    """Each client's sampling probability, or None if all are equal."""
    if sampling == "uniform":
        return None
    weights = [float(n) for n in sizes] if sampling == "examples" else list(map(float, sampling))
    if len(weights) != len(sizes):
        raise ConfigError(
            f"has {len(weights)} weights for {len(sizes)} clients",
            "give one for each client",
            setting="sampling",
        )
    total = math.fsum(weights)
    return [weight / total for weight in weights]
