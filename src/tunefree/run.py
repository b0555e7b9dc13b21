"""A run: schedule x fleet x algorithm, evaluated, recorded and yielded step by step."""

from __future__ import annotations

import hashlib
import math
import platform
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tunefree.core import Algorithm, Client, Server, Vec, WireError, stream
from tunefree.data.samples import Federation
from tunefree.evaluate import Evaluator
from tunefree.fleet.serial import Serial
from tunefree.models.oracle import DataOracle, Objective
from tunefree.record import SERVER, Record, Row
from tunefree.schedule.sync import Opening, synchronous
from tunefree.schedule.trip import Job, Step


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
        opening: Opening = "gradients",
        grad_norm: bool = False,
        out: Path | None = None,
        facts: dict[str, object] | None = None,
    ) -> None:
        objective.check(federation.train)
        self.algo, self.objective, self.federation = algo, objective, federation
        self._batch_size, self._seed, self._eval_every = batch_size, seed, eval_every
        self._opening: Opening = opening
        self._evaluate = Evaluator(objective, federation, seed, grad_norm)
        self._fleet = Serial(algo, objective.theta0, self._oracle)
        self.theta: Vec = objective.theta0
        self.record = Record.create(
            out, {"versions": versions(), "state": "running", **(facts or {})}
        )

    def __iter__(self) -> Iterator[Row]:
        """Train; each step is evaluated where it is due, recorded, and yielded as a row."""
        steps = synchronous(self.algo, self._fleet, self.theta, self._seed, self._opening)
        try:
            yield from self._rows(steps)
        except WireError as error:
            self.record.note(state="diverged", reason=str(error))
            raise
        except BaseException:
            self.record.note(state="interrupted")
            raise
        self.record.note(state="done")

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
            clients=len(step.clients),
            drawn=step.drawn,
            seconds=seconds,
            scores=scores,
            traffic=step.traffic,
            states=states,
        )

    def _oracle(self, job: Job) -> DataOracle:
        rng = stream(self._seed, "client", *job.key)
        part = self.federation.parts[job.client]
        return DataOracle(self.objective, self.federation.train, part, self._batch_size, rng)

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
