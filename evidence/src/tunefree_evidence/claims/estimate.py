"""How long runs will take, from the time of one gradient and one evaluation on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tunefree import models
from tunefree.data import load, stream
from tunefree.search import MethodSpec, Settings
from tunefree_evidence.claims import theory
from tunefree_evidence.claims.theory import Case
from tunefree_evidence.machine import one_thread

TIMES = 5
EVALUATED = 200  # samples at once
TRAINING_SAMPLES = 5000  # that an evaluation computes the training loss on, about


class Estimator:
    """Seconds of a gradient and of evaluating a sample, measured once for each kind of run."""

    def __init__(self) -> None:
        self._known: dict[str, Speed] = {}

    def seconds(self, configs: Iterable[Settings]) -> float:
        """Seconds of all these runs, one after the other."""
        return sum(self._seconds(config) for config in configs)

    def _seconds(self, config: Settings) -> float:
        kind = repr(
            (config.data, config.data_option, config.model, config.model_option, config.batch_size)
        )
        if kind not in self._known:
            self._known[kind] = time_kind(config)
        gradient, evaluation, trained, tested = self._known[kind]
        batch = config.batch_size
        evaluations = -(-config.rounds // config.eval_every)
        whole = gradient * trained / batch  # of the full gradient
        each = evaluation * (tested + TRAINING_SAMPLES) + (whole if config.grad_norm else 0)
        return gradients(config) * gradient + evaluations * each


def gradients(config: Settings) -> int:
    """How many a run computes: one or two per step, and those of the opening."""
    (N, S, K, T), name = config.system, config.algorithm
    algo = MethodSpec(name).bound(config.system._replace(T=S * K + 1))
    return T * S * K * per_step(name) + (N * K if algo.opening() else 0)


def per_step(name: str) -> int:
    return 2 if name == "padamfed_vr" else 1


class Speed(NamedTuple):
    """Of one kind of run on this machine."""

    gradient: float  # seconds
    evaluation: float  # seconds for one sample
    trained: int  # samples
    tested: int


def time_kind(config: Settings) -> Speed:
    data = load(config.data, config.data_dir or None, **config.data_option)
    shape, classes = data.train.input_shape, data.classes
    module = models.build(config.model or data.model, shape, classes, config.model_option)
    objective, rng = models.Objective(module), stream(0, "estimate")
    theta, few = objective.theta0, min(1000, len(data.train))
    tested = data.test.batch(slice(0, EVALUATED))

    def gradient() -> None:
        x, y = data.train.batch(rng.choice(few, min(config.batch_size, few), replace=False))
        objective.grad(theta, x, y, seed=0)

    with one_thread():
        return Speed(
            gradient=fastest(gradient),
            evaluation=fastest(lambda: objective.score(theta, *tested)) / len(tested[1]),
            trained=len(data.train),
            tested=len(data.test),
        )


def fastest(action: Callable[[], object]) -> float:
    """The shortest time of several, in seconds, without the first."""
    action()
    times = []
    for _ in range(TIMES):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def theory_seconds(cases: Iterable[Case]) -> float:
    """Seconds of all these cases, one after the other."""
    short = Case("padamfed", theory.constants(64))
    step = fastest(lambda: theory.trajectory(short, 0)) / steps_of(short)
    return step * sum(map(steps_of, cases))


def steps_of(case: Case) -> int:
    return case.sys.T * case.sys.S * case.sys.K * per_step(case.algorithm)


def in_words(seconds: float) -> str:
    """
    >>> in_words(42), in_words(600), in_words(9000), in_words(400_000)
    ('42 s', '10 min', '2.5 h', '4.6 days')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"
