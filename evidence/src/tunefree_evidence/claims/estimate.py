"""How long runs will take, from the time of one gradient and one evaluation on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import numpy as np

from tunefree.core import stream
from tunefree.data import sources
from tunefree.derive import named_dataset, named_objective
from tunefree.fleet.work import keep_memory
from tunefree.methods import registry
from tunefree.models.objective import EVALUATION_BATCH
from tunefree.models.oracle import DataOracle
from tunefree.models.threads import one_thread
from tunefree.run.evaluate import TRAINING_SAMPLES, scores_on
from tunefree.settings import Settings
from tunefree_evidence.claims import theory
from tunefree_evidence.claims.theory import Case

TIMES = 5


class Estimator:
    """Seconds of a gradient and of evaluating a sample, measured once for each kind of run."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, float, int]] = {}

    def seconds(self, configs: Iterable[Settings]) -> float:
        """Seconds of all these runs, one after the other."""
        return sum(self._seconds(config) for config in configs)

    def _seconds(self, config: Settings) -> float:
        kind = repr(
            (config.data, config.data_option, config.model, config.model_option, config.batch_size)
        )
        if kind not in self._known:
            self._known[kind] = time_kind(config)
        gradient, evaluation, tested = self._known[kind]
        batch = config.batch_size
        evaluations = -(-config.rounds // config.eval_every)
        whole = gradient * sources.SOURCES[config.data].train / batch  # of the full gradient
        each = evaluation * (tested + TRAINING_SAMPLES) + (whole if config.grad_norm else 0)
        return gradients(config) * gradient + evaluations * each


def gradients(config: Settings) -> int:
    """How many a run computes: one or two per step, and those of the opening."""
    (N, S, K, T), name = config.system, config.algorithm
    algo = registry.build(name, config.system._replace(T=S * K + 1))
    return T * S * K * per_step(name) + (N * K if algo.opening() else 0)


def per_step(name: str) -> int:
    return 2 if name == "padamfed_vr" else 1


def time_kind(config: Settings) -> tuple[float, float, int]:
    """Seconds of one gradient, seconds of evaluating one sample, and the size of the test set."""
    data = named_dataset(config)
    objective = named_objective(config, data)
    part = np.arange(min(1000, len(data.train)))
    F = DataOracle(objective, data.train, part, config.batch_size, stream(0, "estimate"))
    theta, test = objective.theta0, data.test.batch(slice(0, EVALUATION_BATCH))
    keep_memory()
    with one_thread():
        gradient = fastest(lambda: F.grad(theta, F.draw()))
        evaluation = fastest(lambda: scores_on(objective, theta, [test], data.classes))
    return gradient, evaluation / len(test[1]), len(data.test)


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
