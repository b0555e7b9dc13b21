"""The engine, simulated or deployed: a loop's steps evaluated, recorded and yielded as rows."""

from __future__ import annotations

import hashlib
import math
import time
import weakref
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import closing, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tunefree.core import Algorithm, Server, Vec, Vectors, about, own
from tunefree.errors import ConfigError, RecordError, WireError
from tunefree.fleet.job import Fleet
from tunefree.fleet.states import Stored, arrays, field, restore
from tunefree.models.objective import Objective, one_thread
from tunefree.models.own import NOBODY, OwnParts, first_state
from tunefree.record import ACK, BEST, GAUGE, SERVER, Line, Record, Row, Rows, this_process
from tunefree.record.evidence import compared, outliers
from tunefree.record.file import is_early
from tunefree.schedule.exchange import Release, Step
from tunefree.schedule.gauge import left, readmitted, without
from tunefree.schedule.membership import Membership
from tunefree.settings import Settings
from tunefree.wire import decode, encode

JUDGES = ("accuracy", "client_accuracy", "loss", "client_loss", "train_loss")  # of the best model
SILENT_STEPS = 3  # steps in a row without a usable reply, after which the run ends


class Environment(Protocol):
    """Where the clients of a run are, simulated or deployed."""

    @property
    def members(self) -> Membership:
        """The clients that take part."""

    def start(self, stored: Stored) -> Fleet:
        """The fleet that does their jobs; `stored` reads a client's last state back."""

    def steps(
        self, fleet: Fleet, theta0: Vec, after: Step | None, release: Release | None = None
    ) -> Iterator[Step]:
        """The steps of its loop: all, or those after a given one."""


class PrivateRelease(Release, Protocol):
    """A release with scores of its own."""

    def scores(self, rounds: int, due: bool) -> Mapping[str, float]:
        """What the row after so many rounds says of it; more if an evaluation is due."""


class Parts(NamedTuple):
    """What a run consists of, simulated or deployed."""

    environment: Environment
    objective: Objective
    record: Record
    evaluate: Callable[[Vec, OwnParts], Mapping[str, float]]
    settings: Settings
    private: Callable[[Mapping[str, float]], PrivateRelease] | None = None  # after the last row
    spent: Callable[[int], float] | None = None  # the epsilon after so many rounds, if by clients


class Training:
    """A loop's steps, evaluated and recorded: iterate it for a row per step, break, iterate again.

    During iteration its fleet runs and its file is locked. However the loop is left, all complete
    steps are committed, and the next loop continues after them.
    """

    def __init__(self, parts: Parts) -> None:
        self._environment, self.objective, self.record, self._evaluate = parts[:4]
        self._settings, self._private, self._spent = parts.settings, parts.private, parts.spent
        self.members = self._environment.members
        self.step = last_step(self.record, self.algo, self.objective.theta0)
        self._uncommitted: list[tuple[Line, Row]] = []
        self._states: Mapping[int, Vectors] = {}  # by owner, after the last complete step
        self._left_states: dict[int, Vectors] = {}  # of a run without a file
        self._gauge: Vectors = {}  # after the last complete step
        self._named: set[int] = set()  # clients that stand apart
        self._best: dict[str, NDArray[Any]] = self.record.vectors(BEST)
        self._better = False  # than the one in the file
        self._committed: Server | None = None  # unchanged fields are not written again
        self._open: weakref.ref[Generator[Row, None, None]] | None = None
        self.record.release()

    def __iter__(self) -> Generator[Row, None, None]:
        """Continue training; each step is evaluated if due, recorded, and yielded as a row.

        There is one loop at a time: an earlier open one ends here.
        """
        if self._open is not None and (before := self._open()) is not None:
            before.close()
        rows = self._train()
        self._open = weakref.ref(rows)
        return rows

    def _train(self) -> Generator[Row, None, None]:
        if self.record.path:
            self.members = self._environment.members
        self.step = last_step(self.record, self.algo, self.objective.theta0)
        if self.record.state == "done":
            return
        self.record.acquire()
        self.record.note(state="running", writer=this_process())
        self._committed, fleet = None, None
        self.members.gauge.restore(self.record.vectors(GAUGE))
        end = {"state": "interrupted"}
        try:
            fleet = self._environment.start(self._stored)
            yield from self._rows(fleet)
            self.record.settle()
            end = {"state": "done"}
        except WireError as error:
            end = {"state": "diverged", "reason": str(error)}
            raise
        except RecordError as error:
            self._uncommitted.clear()  # they follow a step that is not in the file
            how = self.record.facts().how_to_resume(self.record.path)
            raise RecordError(f"{error}; resume with: {how}") from error
        finally:
            if fleet is not None:
                fleet.close()
            with suppress(RecordError):  # the first failure has been raised already
                self._commit(fleet)
                self.record.note(**end)
            self._uncommitted.clear()
            if not self.record.path:
                self._left_states |= self._states
            self._states = {}
            self.record.release()

    def readmit(self, who: Collection[int | str]) -> None:
        """Ask these clients again, which are in quarantine; belongs between two loops."""
        called = self.record.facts().called
        out = {called(client): client for client in self.record.quarantined()}
        if wrong := sorted({str(each) for each in who} - out.keys()):
            now = ", ".join(out) or "nobody"
            raise ConfigError(
                f"client {wrong[0]} is not in quarantine", f"in quarantine now: {now}"
            )
        clients = [out[str(each)] for each in who]
        t = -1 if self.step is None else self.step.t
        self.record.acquire()
        self.record.replace(GAUGE, readmitted(self.record.vectors(GAUGE), clients, t))
        self.record.release()

    def news(self) -> list[str]:
        """A sentence for each client that stands apart and was not named before."""
        apart = outliers(compared(self._gauge).values())
        new = {client: why for client, why in apart.items() if client not in self._named}
        self._named |= new.keys()
        called = self.record.facts().called if new else str
        return [f"client {called(client)} stands apart: {why}" for client, why in new.items()]

    def go_back(self, rounds: int) -> None:
        """Forget everything after so many rounds; belongs between two loops."""
        self.record.acquire()
        refuse_going_back(self.record, rounds)
        self.record.go_back(rounds - 1)
        self.record.release()
        self.step = last_step(self.record, self.algo, self.objective.theta0)
        self._best = self.record.vectors(BEST)

    def leave_out(self, who: Collection[int | str]) -> None:
        """Ask these clients no more, and take their shares out of the server's means; belongs
        between two loops. They count as clients that have sent nothing.
        """
        algo, gauge = self.algo, self.record.vectors(GAUGE)
        called = self.record.facts().called
        known = {called(client): client for client in range(algo.sys.N if self.step else 0)}
        if wrong := [str(each) for each in who if str(each) not in known]:
            raise ConfigError(
                f"there is no client {wrong[0]} to be left out",
                f"there are {listed(known)}" if known else "start the run first",
            )
        clients = {known[str(each)] for each in who}
        server, deployed = self.step and self.step.server, self.record.facts().deployed
        means = about(algo).means  # a deployed server stores its clients' shares, not their states
        zero = {c: 0 * getattr(own(server), c) for c in means}
        nothing = {ACK: np.array((), np.int64)} | {c: np.asarray(v) for c, v in zero.items()}
        theta0, own_part = self.objective.theta0, self.objective.own
        first = nothing if deployed else arrays(first_state(algo, theta0, own_part))
        within = "" if deployed or own_part is None else "method."
        self.record.acquire()
        for client in sorted(clients - left(gauge)):
            has = self.record.vectors(client) or first
            names = {c: c if deployed else within + means[c] for c in means}
            share = {c: field(zero[c], names[c], has) for c in means}
            server = algo.with_share(server, client, share, zero, algo.sys.N)
            self.record.replace(client, first)
        self.record.replace(SERVER, arrays(server))
        self.record.replace(GAUGE, without(gauge, clients))
        self.record.release()
        self.step = last_step(self.record, algo, self.objective.theta0)

    def _rows(self, fleet: Fleet) -> Iterator[Row]:
        history, theta0 = self.history, self.objective.theta0
        release = self._private and self._private(history[-1] if history else {})
        steps = self._environment.steps(fleet, theta0, self.step, release)
        rows = Rows(history[-1] if history else None)
        silent = silent_steps(history, may_be_empty=release is not None)
        while True:
            started = time.perf_counter()
            with one_thread():  # for the server too: more threads would only slow down the workers
                step = next(steps, None)
            if step is None:
                return
            seconds = time.perf_counter() - started
            empty = release is not None and not step.absent  # nobody's coin fell
            silent = 0 if step.clients or step.t < 0 or empty else silent + 1
            if silent == SILENT_STEPS:
                raise self.members.silence(step, silent, self.record.facts().called)
            refuse_non_finite("theta", float(step.server.theta.sum()), step.t)
            due = (step.t + 1) % self._settings.eval_every == 0 or step.t + 1 == self.algo.sys.T
            states, theta = fleet.states.new(), step.server.theta
            scores = dict(self._evaluate(theta, self._own_parts(states))) if due else {}
            scores |= release.scores(step.t + 1, due) if release else {}
            scores |= {"epsilon": self._spent(step.t + 1)} if self._spent and due else {}
            for name, value in scores.items():
                refuse_non_finite(name, value, step.t)
            self.step, self._states = step, states
            self._judge(step.t, scores)
            self._gauge = dict(self.members.gauge.vectors)
            line = line_of(step, seconds, scores)
            row = rows.add(line)
            self._uncommitted.append((line, row))
            if self._commit_is_due(step.t) or (self.record.path and fleet.states.full):
                self._commit(fleet)
            yield dict(row)

    def _commit_is_due(self, t: int) -> bool:
        if every := self._settings.commit_every:
            return (t + 1) % every == 0
        return self.record.path is None or is_early(t) or self.record.costs_little()

    def _stored(self, owner: int) -> Vectors:
        return self.record.vectors(owner) if self.record.path else self._left_states.get(owner, {})

    def _own_parts(self, states: Mapping[int, Vectors]) -> OwnParts:
        """The parts of the model that clients have for themselves."""
        if self.objective.own is None:
            return NOBODY

        def own_of(client: int) -> Vec | None:
            found = (states.get(client) or self._stored(client)).get("own")
            return None if found is None else torch.from_numpy(found).to(self.objective.theta0)

        return OwnParts(own_of, self.algo.sys.N)

    def _judge(self, t: int, scores: Mapping[str, float]) -> None:
        """Remember this model if none before had a better score."""
        name = next((each for each in JUDGES if each in scores), "")
        if not name:
            return
        value = -scores[name] if "loss" in name else scores[name]
        if not self._best or value > self._best["value"]:
            vectors = {"theta": self.theta}
            if self.objective.own is not None:
                mean = self.own.mean
                vectors["own"] = self.objective.own.first if mean is None else mean
            self._best = {name: vector.cpu().numpy() for name, vector in vectors.items()}
            self._best |= {"value": np.array(value), "round": np.array(t + 1)}
            self._better = True

    def _commit(self, fleet: Fleet | None) -> None:
        """Checkpoint: the steps since the last one, and the states after the last of them."""
        lines = [line for line, _ in self._uncommitted]
        if not lines or self.step is None or fleet is None:
            return
        if facts := self.members.facts():
            self.record.note(**facts)
        own = self._states if self.record.path else {}
        now, before = self.step.server, self._committed
        changed = {  # the others are stored already
            name
            for name, value in now._asdict().items()
            if before is None or getattr(before, name) is not value
        }
        vectors = {
            name: vector
            for name, vector in arrays(now).items()
            if name.partition(".")[0] in changed
        }
        server, self._committed = {**vectors, **own.get(SERVER, {})}, now
        in_flight = self.step.in_flight
        best = {BEST: self._best} if self._better else {}
        self._better = False
        self.record.commit(
            lines,
            states={**own, **best, SERVER: server, GAUGE: self._gauge},
            in_flight=in_flight,
            new={t: encode(down) for t, down in in_flight.items() if t >= lines[0].t},
        )
        self._uncommitted.clear()
        if self.record.path:
            fleet.states.written()

    @property
    def algo(self) -> Algorithm:
        return self.members.algo

    @property
    def theta(self) -> Vec:
        """The model trained so far, as one vector."""
        theta: Vec = self.step.server.theta if self.step else self.objective.theta0
        return theta

    @property
    def model(self) -> nn.Module:
        """The model trained so far, with the mean of clients' own parts if they have any."""
        return self._module(self.theta, self.own.mean)

    def model_of(self, client: int | str) -> nn.Module:
        """The model trained so far, with this client's own part if it has one."""
        return self._module(self.theta, self._own_of(client))

    @property
    def best(self) -> nn.Module:
        """The evaluated model with the best score: accuracy, or else loss, on the test set; without
        one on clients' held-out data, or else the training loss.
        """
        if not self._best:
            raise ConfigError("no model was evaluated yet", "train first")
        found = {name: torch.from_numpy(v).to(self.theta) for name, v in self._best.items()}
        return self._module(found["theta"], found.get("own"))

    @property
    def own(self) -> OwnParts:
        """The parts of the model that clients have for themselves, after the last step."""
        return self._own_parts(self._states)

    def _own_of(self, client: int | str) -> Vec | None:
        return self.own(self.record.facts().number(client))

    def _module(self, theta: Vec, own: Vec | None) -> nn.Module:
        self.objective.put(own)
        return self.objective.module_at(theta)

    @property
    def history(self) -> list[Row]:
        """One row per step so far, with cumulative samples, seconds and bits."""
        return [*self.record.history(), *(dict(row) for _, row in self._uncommitted)]

    @property
    def theta_sha256(self) -> str:
        """A fingerprint of the model: the same seed gives the same bits."""
        return hashlib.sha256(self.theta.cpu().numpy().tobytes()).hexdigest()


def refuse_non_finite(name: str, value: float, t: int) -> None:
    if not math.isfinite(value):
        if t < 0:
            raise WireError(
                f"`{name}` is not finite before the first round: nothing was trained yet; check "
                "the loss, the initial model and the scale of the data"
            )
        raise WireError(f"`{name}` is not finite at t = {t}: training has diverged")


def ready_to_go_back(path: Path, rounds: int) -> None:
    """Refuse what cannot go back; a diverged run may be resumed if it does."""
    with closing(Record.open(path)) as reader:
        refuse_going_back(reader, rounds)
        state = reader.state
    if state == "diverged":
        Record.resume(path, state="interrupted").close()


def refuse_going_back(record: Record, rounds: int) -> None:
    """Refuse to go back to where there is no checkpoint, or where privacy was spent since."""
    if record.facts().privacy:
        raise ConfigError(
            "a private run cannot go back: what its later rounds have told stays told, and spent",
            "continue it, or start a new run and add up the two budgets",
        )
    there = [t + 1 for t in record.checkpoints()]
    if rounds not in there:
        raise ConfigError(
            "is no checkpoint of this run",
            f"it can go back to the end of round {', '.join(map(str, there)) or 'none'}",
            setting="from_round",
            value=rounds,
        )


def listed(names: Collection[str]) -> str:
    """The first few of many names, and the last."""
    some = list(names)
    return ", ".join(some if len(some) < 8 else [*some[:5], f"..., {some[-1]}"])


def silent_steps(history: list[Row], may_be_empty: bool = False) -> int:
    """How many steps at the end of the record had no usable reply, though somebody was asked.

    Only where it `may_be_empty` is a step in which nobody was asked as good as any other.
    """

    def silent(row: Row) -> bool:
        return not row["clients"] and row["t"] >= 0 and not (may_be_empty and not row["absent"])

    return sum(1 for _ in takewhile(silent, reversed(history)))


def line_of(step: Step, seconds: float, scores: Mapping[str, float]) -> Line:
    replies = list(zip(step.clients, step.staleness, strict=True))
    costs = step.samples, seconds, step.virtual_seconds
    return Line(step.t, *costs, replies, scores, step.traffic, step.absent)


def last_step(record: Record, algo: Algorithm, theta0: Vec) -> Step | None:
    """The last committed step with everything that the next one needs, if there is one."""
    last = record.last()
    if last is None:
        return None
    t, virtual_seconds = last
    server = restore(algo.server(theta0), record.vectors())
    Down = algo.round()[0].Down
    in_flight = {then: decode(data, Down, like=theta0) for then, data in record.in_flight().items()}
    return Step(t, server, virtual_seconds=virtual_seconds, in_flight=in_flight)
