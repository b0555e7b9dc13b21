"""Attacks for simulations: some clients work honestly, and then send something else.

sign-flip    the upload with the other sign
scaled:F     F times the upload
noise        Gaussian noise as long as the upload
label-flip   an honest upload for wrong labels: of C classes, C - 1 - y in place of y
drift        the upload, and a vector as long that always has one direction, the same for all
             attackers, and grows by 2 % a round
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from tunefree.core import Message, Vec, norm, stream
from tunefree.data.samples import Federation, Samples
from tunefree.errors import ConfigError
from tunefree.fleet.job import Job
from tunefree.wire import Compressed

KINDS = ("sign-flip", "scaled", "noise", "label-flip", "drift")
GROWTH = 1.02  # of a drift, per round


@dataclass(frozen=True)
class Attack:
    """Who attacks, and how."""

    kind: str
    factor: float
    clients: tuple[int, ...]
    seed: int

    def __call__(self, job: Job, up: Message) -> Message:
        """What is sent in place of an honest upload."""
        if job.client not in self.clients or self.kind == "label-flip":
            return up
        return type(up)(*(self._changed(job, name, v) for name, v in up._asdict().items()))

    def _changed(self, job: Job, name: str, value: Any) -> Any:
        if isinstance(value, Compressed):
            parts: Mapping[int, Any] = dict(enumerate(value.parts))
            return Compressed(
                tuple(
                    replace(part, numbers=self._changed(job, f"{name} {i}", part.numbers))
                    for i, part in parts.items()
                )
            )
        return self._forged(job, name, value) if isinstance(value, torch.Tensor) else value

    def _forged(self, job: Job, name: str, v: Vec) -> Vec:
        if self.kind in ("sign-flip", "scaled"):
            return self.factor * v
        own = () if self.kind == "drift" else job.key
        rng = stream(self.seed, f"attack {name}", *own)
        noise = torch.from_numpy(rng.standard_normal(len(v))).to(v) * norm(v) / math.sqrt(len(v))
        return noise if self.kind == "noise" else v + GROWTH ** max(0, job.t) * noise

    def samples(self, federation: Federation) -> Samples:
        """The clients' samples, those of the attackers with wrong labels if it is that attack."""
        train, classes = federation.train, federation.classes
        if self.kind != "label-flip":
            return train
        if train.lazy or classes is None or train.y.dim() != 1 or train.y.is_floating_point():
            raise ConfigError(
                "needs one label per sample, in memory",
                "choose another attack",
                setting="attack",
                value=self.kind,
            )
        y = train.y.clone()
        for client in self.clients:
            at = torch.from_numpy(federation.parts[client])
            y[at] = classes - 1 - y[at]
        return replace(train, y=y)


def from_spec(spec: str, N: int, seed: int) -> Attack | None:
    """The attack in a setting such as `sign-flip:3`, by clients drawn from the seed.

    >>> from_spec("scaled:-10:2", N=10, seed=0)
    Attack(kind='scaled', factor=-10.0, clients=(3, 9), seed=0)
    """
    if not spec:
        return None
    kind, *numbers = spec.split(":")
    try:
        *factor, count = map(float, numbers)
        fits = kind in KINDS and len(factor) == (kind == "scaled") and count == int(count)
    except ValueError:
        fits = False
    if not fits or not 1 <= count <= N or not all(map(math.isfinite, factor)):
        raise ConfigError(
            "is not an attack",
            f"give sign-flip:3, scaled:10:3 (times 10), noise:3, label-flip:3 or drift:3, where 3 "
            f"is how many of the {N} clients attack",
            setting="attack",
            value=spec,
        )
    chosen = stream(seed, "attackers").choice(N, int(count), replace=False)
    return Attack(kind, (factor or [-1.0])[0], tuple(sorted(chosen.tolist())), seed)
