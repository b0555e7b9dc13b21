"""A run: schedule x fleet x algorithm, evaluated, recorded and yielded step by step."""

from __future__ import annotations

import hashlib
import math
import platform
import time
from collections.abc import Iterator
from importlib import metadata
from itertools import repeat
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tunefree.core import Algorithm, Client, Server, System, Vec
from tunefree.data.samples import Federation
from tunefree.errors import ConfigError, WireError
from tunefree.evaluate import Evaluator
from tunefree.fleet.pool import Pool, cores
from tunefree.fleet.serial import Serial
from tunefree.fleet.work import DataClients
from tunefree.models.oracle import Objective
from tunefree.record import SERVER, Record, Row
from tunefree.schedule.choice import SYNCHRONOUS, Schedule
from tunefree.schedule.trip import Job, Step

FleetName = Literal["auto", "serial", "pool"]
POOL_SECONDS = 10  # of local steps, below which starting processes is not worth it


class Run:
    """A federated training. Iterate it for one row per step; afterwards it holds the result."""

    def __init__(
        self,
        algo: Algorithm,
        objective: Objective,
        federation: Federation,
        *,
        batch_size: int,
        seed: int,
        eval_every: int,
        schedule: Schedule = SYNCHRONOUS,
        grad_norm: bool = False,
        fleet: FleetName = "auto",
        workers: int = 0,
        out: Path | None = None,
        facts: dict[str, object] | None = None,
    ) -> None:
        schedule.check(algo)
        objective.check(federation.train)
        self.algo, self.objective, self.federation = algo, objective, federation
        self._seed, self._eval_every = seed, eval_every
        self._schedule = schedule
        self._evaluate = Evaluator(objective, federation, seed, grad_norm)
        clients = DataClients(objective, federation.train, federation.parts, batch_size, seed)
        if fleet == "auto":
            fleet = "pool" if pool_pays(clients, algo.sys) else "serial"
        if fleet == "pool" and objective.device.type != "cpu":
            raise ConfigError(
                f"run.fleet = 'pool' works on the cpu, not on {objective.device}; use 'serial'"
            )
        self.theta: Vec = objective.theta0
        self.record = Record.create(
            out,
            {
                **{"versions": versions(), "state": "running"},
                **{"fleet": fleet, "kernels": objective.kernels},
                **(facts or {}),
            },
        )
        self._fleet: Serial | Pool = (
            Pool(algo, objective.theta0, clients, workers or None)
            if fleet == "pool"
            else Serial(algo, objective.theta0, clients)
        )

    def __iter__(self) -> Iterator[Row]:
        """Train; each step is evaluated where it is due, recorded, and yielded as a row."""
        steps = self._schedule.steps(self.algo, self._fleet, self.theta, self._seed)
        try:
            yield from self._rows(steps)
        except WireError as error:
            self.record.note(state="diverged", reason=str(error))
            raise
        except BaseException:
            self.record.note(state="interrupted")
            raise
        else:
            self.record.note(state="done")
        finally:
            self._fleet.close()

    def _rows(self, steps: Iterator[Step]) -> Iterator[Row]:
        T = self.algo.sys.T
        while True:
            began = time.perf_counter()
            step = next(steps, None)
            if step is None:
                return
            seconds = time.perf_counter() - began
            refuse_non_finite("theta", float(step.server.theta.sum()), step.t)
            due = (step.t + 1) % self._eval_every == 0 or step.t + 1 == T
            scores = self._evaluate(step.server.theta) if due else {}
            for name, value in scores.items():
                refuse_non_finite(name, value, step.t)
            self._commit(step, seconds, scores)
            self.theta = step.server.theta
            yield {"t": step.t, "seconds": seconds, **scores}

    def _commit(self, step: Step, seconds: float, scores: dict[str, float]) -> None:
        states = {SERVER: arrays(step.server)}
        if self.record.path is not None:
            states |= {client: arrays(self._fleet.state(client)) for client in step.clients}
        self.record.commit(
            step.t,
            replies=zip(step.clients, step.staleness or repeat(0), strict=False),
            drawn=step.drawn,
            seconds=seconds,
            time=step.time,
            scores=scores,
            traffic=step.traffic,
            states=states,
        )

    @property
    def history(self) -> list[Row]:
        """One row per step so far, with cumulative samples, seconds and bits."""
        return self.record.history()

    @property
    def model(self) -> nn.Module:
        """The model as trained so far."""
        return self.objective.module_at(self.theta)

    @property
    def theta_sha256(self) -> str:
        """A fingerprint of the model: the same seed gives the same bits."""
        return hashlib.sha256(self.theta.cpu().numpy().tobytes()).hexdigest()


def pool_pays(clients: DataClients, sys: System) -> bool:
    """Whether the local steps of all rounds take long enough for worker processes to help."""
    if cores() < 2 or sys.S < 2 or clients.objective.device.type != "cpu":
        return False
    F = clients(Job(0, -1, "round", 0, None))
    theta, xi = clients.objective.theta0, F.draw()
    F.grad(theta, xi)
    began = time.perf_counter()
    F.grad(theta, xi)
    return sys.T * sys.S * sys.K * (time.perf_counter() - began) > POOL_SECONDS


def refuse_non_finite(name: str, value: float, t: int) -> None:
    if not math.isfinite(value):
        raise WireError(f"`{name}` is not finite at t = {t}: training has diverged")


def arrays(state: Server | Client) -> dict[str, NDArray[Any]]:
    """A state's fields as numpy arrays."""
    return {
        name: value.cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        for name, value in state._asdict().items()
    }


def versions() -> dict[str, str]:
    packages = ("tunefree", "torch", "numpy")
    return {"python": platform.python_version()} | {p: metadata.version(p) for p in packages}
