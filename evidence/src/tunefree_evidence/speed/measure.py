"""Seconds per round, ours against a hand-written loop, interleaved in one run.

Absolute times are noise on a shared machine; the ratios are the result.
"""

from __future__ import annotations

import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise, repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from tunefree import Run, Schedule, System, models
from tunefree.data import Samples
from tunefree.geometry import polar_directions
from tunefree.models import Objective
from tunefree_evidence.machine import cores, one_thread
from tunefree_evidence.speed import bare_loop
from tunefree_evidence.speed.workloads import IMAGE, Workload, federation

Fleet = Literal["serial", "pool", "ray"]
FOREVER = 10**6  # rounds; the measurement stops long before


class Times(NamedTuple):
    """The times of one contestant."""

    name: str
    first: float  # seconds until its first round was done, in total
    rounds: list[float]  # seconds of each later round

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)


def ours(w: Workload, fleet: Fleet, folder: Path, algorithm: str = "padamfed") -> Iterator[None]:
    """Endless rounds of a complete run, recorded in a file like any run."""
    run = make_run(w, w.system(FOREVER), fleet, algorithm, folder / f"{algorithm}-{fleet}.sqlite")
    steps = iter(run)
    next(steps)  # the opening, and an evaluation
    for _ in steps:
        yield


def make_run(w: Workload, sys: System, fleet: Fleet, algorithm: str, out: Path, **more: Any) -> Run:
    data = federation(w)
    module = models.build(w.model, data.train.input_shape, w.classes, w.options)
    return Run(
        module,
        (data.train, data.parts),
        per_round=sys.S,
        local_steps=sys.K,
        rounds=sys.T,
        algorithm=algorithm,
        batch_size=w.batch,
        eval_every=FOREVER,
        fleet=fleet,
        out=out,
        **more,
    )


def measure(w: Workload, rounds: int, repetitions: int) -> list[Times]:
    """All contestants take turns, `rounds` at a time, so that a busy machine is busy for all."""
    workers = cores()
    with tempfile.TemporaryDirectory() as folder:
        contestants: dict[str, Callable[[], Iterator[None]]] = {
            f"bare loop, {torch.get_num_threads()} threads": lambda: bare_loop.in_one_process(w),
            f"bare loop, {workers} processes": lambda: bare_loop.in_processes(w, workers),
            "tunefree serial": lambda: ours(w, "serial", Path(folder)),
            f"tunefree pool, {workers} workers": lambda: ours(w, "pool", Path(folder)),
            "tunefree pool, FedAvg": lambda: ours(w, "pool", Path(folder), "fedavg"),
            "tunefree pool, PolarFL": lambda: ours(w, "pool", Path(folder), "polarfl"),
        }
        turns: dict[str, Iterator[None]] = {}
        times = {}
        for name, start in contestants.items():
            started = time.perf_counter()
            turns[name] = start()
            next(turns[name])
            times[name] = Times(name, time.perf_counter() - started, [])
        for _ in range(repetitions):
            for name, turn in turns.items():
                next(turn)  # warm the caches after the others' turns
                for _ in range(rounds):
                    started = time.perf_counter()
                    next(turn)
                    times[name].rounds.append(time.perf_counter() - started)
        for turn in turns.values():
            turn.close()  # type: ignore[attr-defined]
    return list(times.values())


def polar_seconds(w: Workload) -> float:
    """Seconds of the server's polar step on one thread, as in a run; the fastest of several."""
    shape = (1, *w.shape) if len(w.shape) == 2 else w.shape
    objective = Objective(models.build(w.model, shape, w.classes, w.options))
    times = []
    with one_thread():
        for _ in range(4):
            started = time.perf_counter()
            polar_directions(objective.theta0, objective.shapes)
            times.append(time.perf_counter() - started)
    return min(times)


class Opening(NamedTuple):
    """From nothing to the first finished round on the pool, in a process of its own."""

    data: float  # seconds until the samples and the run are ready
    opening: float  # seconds to start the workers and compute K gradients of all N clients
    first: float  # seconds of the first round
    peak: float  # MiB of all processes together at the end, shared memory counted once


def opening(w: Workload) -> Opening:
    """The time a user waits and the memory used, without imports."""
    with tempfile.TemporaryDirectory() as folder:
        clock = [time.perf_counter()]
        out = Path(folder) / "run.sqlite"
        steps = iter(make_run(w, w.system(FOREVER), "pool", "padamfed", out))
        clock.append(time.perf_counter())
        for _ in range(2):
            next(steps)
            clock.append(time.perf_counter())
        peak = proportional_memory()
        steps.close()
    data, first_pass, first = (after - before for before, after in pairwise(clock))
    return Opening(data, first_pass, first, peak)


def proportional_memory() -> float:
    """MiB of this process and its children; a page shared by n of them counts 1/n for each."""
    here = Path("/proc") / str(os.getpid())
    children = (here / "task" / here.name / "children").read_text().split()
    total = 0
    for process in (here.name, *children):
        rollup = (here.parent / process / "smaps_rollup").read_text()
        total += next(int(line.split()[1]) for line in rollup.splitlines() if line[:4] == "Pss:")
    return total / 1024


class Shares(NamedTuple):
    """Where a serial round's time goes, as shares of the whole."""

    gradients: float  # forward and backward passes
    batches: float  # gathering and standardising samples
    commit: float  # of the step to the run file
    rest: float  # the algorithm's arithmetic, schedule, wire


def shares(w: Workload, rounds: int) -> Shares:
    """Timers around the oracle's two parts, during whole recorded rounds."""
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(w, w.system(FOREVER), "serial", "padamfed", Path(folder) / "run.sqlite")
        clock = dict.fromkeys(("gradients", "batches", "commit"), 0.0)
        objective, batch = run.objective, Samples.batch

        def timed(name: str, function: Callable[..., Any]) -> Any:
            def timing(*args: Any, **more: Any) -> Any:
                started = time.perf_counter()
                result = function(*args, **more)
                clock[name] += time.perf_counter() - started
                return result

            return timing

        run.record.commit = timed("commit", run.record.commit)  # type: ignore[method-assign]
        objective.grad = timed("gradients", objective.grad)  # type: ignore[method-assign]
        Samples.batch = timed("batches", batch)  # type: ignore[method-assign]
        try:
            steps = iter(run)
            next(steps)
            next(steps)
            clock.update(dict.fromkeys(clock, 0.0))
            started = time.perf_counter()
            for _ in range(rounds):
                next(steps)
            whole = time.perf_counter() - started
            steps.close()
        finally:
            Samples.batch = batch  # type: ignore[method-assign]
    used = {name: seconds / whole for name, seconds in clock.items()}
    return Shares(**used, rest=1 - sum(used.values()))


class Scale(NamedTuple):
    """Cost at a number of clients."""

    N: int
    seconds: float  # per round, median
    peak: float  # MiB of this process


def scaling(clients: tuple[int, ...], rounds: int) -> Iterator[Scale]:
    """More and more clients with the same cohort, each number in its own process."""
    alone = get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=alone, max_tasks_per_child=1) as processes:
        yield from processes.map(scale_at, clients, repeat(rounds))


def scale_at(N: int, rounds: int) -> Scale:
    """Softmax regression with N clients, states starting at zero."""
    w = Workload("E", "", "logistic", {}, IMAGE, 10, N=N, samples=2, S=100, K=2, batch=2)
    times = []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run.sqlite"
        steps = iter(
            make_run(
                w, w.system(FOREVER), "serial", "padamfed", out, schedule=Schedule(opening="zero")
            )
        )
        next(steps)
        for _ in range(rounds):
            started = time.perf_counter()
            next(steps)
            times.append(time.perf_counter() - started)
        steps.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Scale(N, statistics.median(times), peak)
