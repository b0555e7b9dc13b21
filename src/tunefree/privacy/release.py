"""The release: all that the server's method learns from a round's uploads is one noisy mean.

Each upload becomes a vector in the unit ball; their sum gets noise and is divided by q N, which is
fixed: who came, and how many, stays hidden in the noise. A lost reply counts as zero, and a round
in which nobody took part releases noise all the same. The method receives it as one reply.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from tunefree.core import Algorithm, Message, Reply, Vec, about
from tunefree.privacy.accountant import Gaussian
from tunefree.privacy.clipping import FIRST, clipped, next_threshold, split_noise
from tunefree.privacy.ledger import Ledger
from tunefree.privacy.noise import (
    Integers,
    Words,
    discrete_gaussian,
    entropy,
    grid,
    on_grid,
    seeded,
)
from tunefree.privacy.promise import Guarantee
from tunefree.wire import Compressed
from tunefree.wire.compressed import Whole

Floats: TypeAlias = NDArray[np.floating]
# Round t, vectors of the unit ball, their size, their clients -> their sum with noise sigma
Sum: TypeAlias = Callable[[int, Sequence[Vec], int, Sequence[int]], Floats]


def simulated(seed: int, sigma: float) -> Sum:
    """Seeded noise: the same seed gives the same bits, and no guarantee."""

    def total(t: int, vectors: Sequence[Vec], size: int, clients: Sequence[int]) -> Floats:
        noisy = torch.from_numpy(seeded(seed, t, size)).mul_(sigma)
        for v in vectors:
            noisy += v.cpu()
        return noisy.numpy()

    return total


class Summed(NamedTuple):
    """The integers of a secure sum, modulo 2^32, each worth so many steps of the noise's grid."""

    words: NDArray[np.int32]
    steps: int

    def plus(self, noise: Integers) -> Integers:
        """The noisy sum, modulo the same: what a cheating client makes wrap around stays hidden."""
        half = self.steps << 31
        return (self.words.astype(np.int64) * self.steps + noise + half) % (2 * half) - half


def key_of(t: int) -> str:
    """The name of a round's release in the ledger."""
    return f"round {t}"


def deployed(
    ledger: Ledger, release: Gaussian, words: Words = entropy, summed: Summed | None = None
) -> Sum:
    """Noise from the system's entropy, on integers; entered in the ledger before it is returned.

    With secure sums the integers are `summed` already, and there are no vectors.
    """
    step = grid(release.sigma, 1.0)

    def total(t: int, vectors: Sequence[Vec], size: int, clients: Sequence[int]) -> Floats:
        def drawn() -> bytes:
            noisy = discrete_gaussian(size, words=words)
            if summed is not None:
                return summed.plus(noisy).tobytes()
            for v in vectors:
                noisy += on_grid(v.cpu().numpy(), step, 1.0)
            return noisy.tobytes()

        known = clients if release.q == 1 else None
        return np.frombuffer(ledger.once(key_of(t), release, drawn, known), np.int64) * step

    return total


class NoisyMean:
    """What a method's server gets in place of replies.

    `bound` is the largest norm of an upload; without one the median norm is followed.
    """

    def __init__(
        self,
        total: Sum,
        sigma: float,
        per_round: float,
        bound: float | None = None,
        threshold: float = FIRST,
        spent: Callable[[int, bool], Mapping[str, float]] = lambda rounds, due: {},
    ) -> None:
        self._total, self._per_round, self._adaptive = total, per_round, bound is None
        self._spent = spent
        self.threshold = threshold if bound is None else bound  # of the next round
        parts = split_noise(sigma, per_round) if bound is None else None
        self._scale = 1.0 if parts is None else sigma / parts.vectors  # of the vectors in the ball
        self._vote = 0.0 if parts is None else sigma / (2 * parts.votes)

    def __call__(
        self,
        t: int,
        Up: type[Message],
        replies: Sequence[Reply],
        like: Vec,
        asked: Sequence[int] | None = None,
    ) -> Reply:
        """One reply whose fields are the noisy means of the fields of these.

        It counts for all who were asked, by default those who replied.
        """
        fields: Any = Up
        size = len(fields._fields) * like.numel()
        balls = [self._in_ball(r.up) for r in replies]
        clients = [r.client for r in replies] if asked is None else asked
        total = self._total(t, balls, size + self._adaptive, clients)
        scale = self.threshold / (self._scale * self._per_round)
        mean = torch.from_numpy((total[:size] * scale).astype(np.float32)).to(like)
        if self._adaptive:
            votes = float(total[size]) / (2 * self._vote * self._per_round)
            self.threshold = next_threshold(self.threshold, votes + 0.5)
        as_field: Callable[[Vec], Any] = whole if is_compressed(Up) else (lambda v: v)
        late = round(sum(r.tau for r in replies) / len(replies)) if replies else 0
        return Reply(-1, 1, late, Up(*(as_field(v) for v in torch.split(mean, like.numel()))))

    def scores(self, rounds: int, due: bool) -> dict[str, float]:
        """For the row after so many rounds: the next threshold, and the epsilon spent."""
        clip = {"clip": self.threshold} if self._adaptive else {}
        return {**clip, **self._spent(rounds, due)}

    def _in_ball(self, up: Message) -> Vec:
        parts = [v if isinstance(v, torch.Tensor) else v.dense() for v in up]
        v, within = clipped(torch.cat(parts) if len(parts) > 1 else parts[0], self.threshold)
        v = v * (self._scale / self.threshold)
        vote = self._vote if within else -self._vote
        return torch.cat([v, v.new_tensor([vote])]) if self._adaptive else v


def whole(v: Vec) -> Compressed:
    """The vector, where a compressed one is expected."""
    return Compressed((Whole(v),))


def is_compressed(Up: type[Message]) -> bool:
    """Whether this message has compressed vectors, by the annotations of its fields."""
    return any("Compressed" in str(kind) for kind in Up.__annotations__.values())


def bound_of(algo: Algorithm, clip: float | None) -> float | None:
    """The largest norm of an upload: the method's own, or the one that was given."""
    bounds, fields = about(algo).bounds, algo.round()[0].Up._fields
    if set(fields) <= set(bounds):
        return math.sqrt(sum(bounds[name] ** 2 for name in fields))
    return clip


def in_simulation(
    guarantee: Guarantee, algo: Algorithm, seed: int, clip: float | None
) -> Callable[[Mapping[str, float]], NoisyMean]:
    """How a simulation starts its release, or goes on with it after the last row."""
    sigma, S = guarantee.release.sigma, algo.sys.S
    bound = bound_of(algo, clip)

    def start(last: Mapping[str, float]) -> NoisyMean:
        threshold, total = last.get("clip", FIRST), simulated(seed, sigma)

        def spent(rounds: int, due: bool) -> Mapping[str, float]:
            return {"epsilon": guarantee.after(rounds, algo.sys)} if due else {}

        return NoisyMean(total, sigma, S, bound, threshold, spent)

    start({})  # refuses what cannot be split
    return start
