"""A run: schedule x fleet x algorithm, evaluated, recorded and yielded step by step."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from torch import nn

from tunefree.core import Algorithm, Client, System, Vec
from tunefree.data.samples import Federation
from tunefree.errors import ConfigError, RecordError, WireError
from tunefree.evaluate import Evaluator
from tunefree.fleet.job import Job
from tunefree.fleet.pool import Pool, cores
from tunefree.fleet.serial import Serial
from tunefree.fleet.states import States, arrays, restored
from tunefree.fleet.work import DataClients
from tunefree.models.objective import Objective
from tunefree.models.threads import one_thread
from tunefree.record import SERVER, Facts, Line, Record, Row
from tunefree.record.provenance import describe, identify
from tunefree.schedule.choice import SYNCHRONOUS, Schedule
from tunefree.schedule.exchange import Step
from tunefree.wire import decode, encode

if TYPE_CHECKING:
    from tunefree.fleet.ray import Ray

FleetName = Literal["auto", "serial", "pool", "ray"]
POOL_SECONDS = 10  # of local steps, below which starting processes is not worth it
PATIENCE = 3  # steps in a row without a usable reply, after which training is given up


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
        commit_every: int = 1,
        schedule: Schedule = SYNCHRONOUS,
        grad_norm: bool = False,
        fleet: FleetName = "auto",
        workers: int = 0,
        out: Path | None = None,
        go_on: bool = False,
        facts: Mapping[str, object] = {},
    ) -> None:
        """With `go_on` the run file `out` exists and its run is continued."""
        schedule.check(algo)
        objective.check(federation.train)
        self.algo, self.objective, self.federation = algo, objective, federation
        self._seed, self._eval_every, self._commit_every = seed, eval_every, commit_every
        self._schedule = schedule
        self._evaluate = Evaluator(objective, federation, seed, grad_norm)
        clients = DataClients(objective, federation.train, federation.parts, batch_size, seed)
        if fleet == "auto":
            fleet = "pool" if pool_pays(clients, algo.sys) else "serial"
        if fleet in ("pool", "ray") and objective.device.type != "cpu":
            raise ConfigError(
                f"run.fleet = {fleet!r} works on the cpu, not on {objective.device}; use 'serial'"
            )
        identity = identify(algo, objective, federation, batch_size, seed, schedule)
        if go_on and out is not None:
            self.record = continued(out, identity)
        else:
            about = describe(algo, objective, federation).as_dict()
            more = {"state": "running", "fleet": fleet, "identity": identity}
            self.record = Record.create(out, Facts.read({**about, **facts, **more}))
        self._after = last_step(self.record, algo, objective.theta0)
        self._states: dict[int, Client] = {}  # of clients, after the last whole step
        self.theta: Vec = self._after.server.theta if self._after else objective.theta0
        states = States(algo.client(objective.theta0), self.record.vectors if out else None)
        theta0, count = objective.theta0, workers or None
        self._fleet: Serial | Pool | Ray
        if fleet == "ray":
            self._fleet = on_ray()(algo, theta0, clients, count, states)
        elif fleet == "pool":
            self._fleet = Pool(algo, theta0, clients, count, states)
        else:
            self._fleet = Serial(algo, theta0, clients, states)

    def __iter__(self) -> Iterator[Row]:
        """Train; each step is evaluated where it is due, recorded, and yielded as a row.

        Whatever ends it, all whole steps so far are committed.
        """
        steps = self._schedule.steps(
            self.algo, self._fleet, self.objective.theta0, self._seed, self._after
        )
        uncommitted: list[Line] = []
        end = {"state": "interrupted"}
        try:
            yield from self._rows(steps, uncommitted)
            self.record.settle()
            end = {"state": "done"}
        except WireError as error:
            end = {"state": "diverged", "reason": str(error)}
            raise
        except RecordError as error:
            raise RecordError(f"{error}; go on with: {how_to_go_on(self.record)}") from error
        finally:
            self._fleet.close()
            with suppress(RecordError):  # the first failure has been told already
                self._commit(uncommitted)
                self.record.note(**end)
            self.record.release()

    def _rows(self, steps: Iterator[Step], uncommitted: list[Line]) -> Iterator[Row]:
        T = self.algo.sys.T
        unheard = silent_steps(self.record)
        while True:
            began = time.perf_counter()
            with one_thread():  # the server's too: others would only wait, and workers with them
                step = next(steps, None)
            if step is None:
                return
            seconds = time.perf_counter() - began
            unheard = 0 if step.clients or step.t < 0 else unheard + 1
            refuse_silence(unheard, step)
            refuse_non_finite("theta", float(step.server.theta.sum()), step.t)
            due = (step.t + 1) % self._eval_every == 0 or step.t + 1 == T
            scores = self._evaluate(step.server.theta) if due else {}
            for name, value in scores.items():
                refuse_non_finite(name, value, step.t)
            self._after, self.theta = step, step.server.theta
            self._states = self._fleet.states.new()
            uncommitted.append(line_of(step, seconds, scores))
            if (step.t + 1) % self._commit_every == 0:
                self._commit(uncommitted)
            heard = {"clients": len(step.clients), "absent": len(step.absent)}
            yield {"t": step.t, "seconds": seconds, **heard, **scores}

    def _commit(self, lines: list[Line]) -> None:
        """Keep the steps of these lines, and the states after the last of them."""
        if not lines or self._after is None:
            return
        owners = {SERVER: self._after.server, **(self._states if self.record.path else {})}
        held = self._after.held
        self.record.commit(
            lines,
            states={owner: arrays(state) for owner, state in owners.items()},
            held=held,
            new={t: encode(down) for t, down in held.items() if t >= lines[0].t},
        )
        lines.clear()
        if self.record.path:
            self._fleet.states.written()

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


def on_ray() -> type[Ray]:
    """The ray fleet, where Ray is installed."""
    try:
        from tunefree.fleet.ray import Ray
    except ImportError as error:
        raise ConfigError(
            f"run.fleet = 'ray' needs Ray ({error}); install it: pip install 'tunefree[ray]'"
        ) from error
    return Ray


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


def refuse_silence(steps: int, step: Step) -> None:
    if steps == PATIENCE:
        last = step.absent[-1]
        raise WireError(
            f"no reply could be used for {PATIENCE} steps in a row, the last because client "
            f"{last.client} at t = {step.t}: {last.reason}; training has diverged"
        )


def silent_steps(record: Record) -> int:
    """How many steps at the end of the record nobody was heard in."""
    rounds = [row for row in record.history() if row["t"] >= 0]
    return sum(1 for _ in takewhile(lambda row: not row["clients"], reversed(rounds)))


def line_of(step: Step, seconds: float, scores: Mapping[str, float]) -> Line:
    replies = list(zip(step.clients, step.staleness, strict=True))
    return Line(step.t, step.drawn, seconds, step.time, replies, scores, step.traffic, step.absent)


def last_step(record: Record, algo: Algorithm, theta0: Vec) -> Step | None:
    """The last committed step with all that the next one needs, if there is one."""
    last = record.last()
    if last is None:
        return None
    t, time = last
    server = restored(algo.server(theta0), record.vectors())
    kind = type(algo.round()[0].down(server))
    held = {then: decode(data, kind, like=theta0) for then, data in record.held().items()}
    return Step(t, server, [], (), 0, time, held=held)


def continued(path: Path, identity: Mapping[str, str]) -> Record:
    """The run file, once it is certain that what follows fits what it holds."""
    with closing(Record.open(path)) as reader:
        begun, state = reader.facts(), reader.state
    if state == "diverged":
        raise ConfigError(f"'{path}' has diverged and has nothing to go on to: {begun.reason}")
    if not begun.identity:
        raise ConfigError(
            f"'{path}' was begun by an earlier tunefree, which did not keep what is needed to go "
            "on; it can still be read: begin a new run"
        )
    for what, value in identity.items():
        if (before := begun.identity[what]) != value:
            raise ConfigError(
                f"'{path}' cannot go on: its {what} was {before}, and now it is {value}; give "
                "what it began with"
            )
    return Record.resume(path)


def how_to_go_on(record: Record) -> str:
    """The command or the call that continues an unfinished run."""
    return record.facts().how_to_resume(record.path)
