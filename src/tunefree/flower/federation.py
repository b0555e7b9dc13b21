"""A deployed run: live steps, evaluated, and committed one by one to the same kind of run file."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from flwr.serverapp import Grid

from tunefree.api import is_label, outputs
from tunefree.core import Vec
from tunefree.data.clients import federation_from
from tunefree.errors import ConfigError, FleetError, RecordError, WireError
from tunefree.evaluate import scores_on
from tunefree.fleet.states import arrays
from tunefree.flower.grid import Members, Post
from tunefree.flower.ledger import Books
from tunefree.flower.live import Live
from tunefree.flower.serverapp import new_run_id
from tunefree.flower.settings import Builder, Choice, objective_of, settings_from
from tunefree.models.objective import EVALUATION_BATCH, Loss
from tunefree.models.threads import one_thread
from tunefree.record import SERVER, Facts, Record
from tunefree.record.provenance import ADDRESS, describe, fingerprint
from tunefree.run import continued, last_step, line_of, refuse_non_finite, silent_steps
from tunefree.schedule.exchange import Step

PATIENCE = 3  # steps in a row in which nobody is heard, after which the run stops
OWN_N = "N"  # how many clients the server's means are over, kept beside its vectors


class Federated:
    """A federated training on a Grid. Iterate it for one row per step.

    With a run file that exists, the run goes on after its last committed step.
    """

    def __init__(
        self,
        grid: Grid,
        run_config: Mapping[str, Any],
        build_model: Builder,
        test: Any,
        loss: Loss | None,
        choice: Choice | None,
    ) -> None:
        self._settings = settings = settings_from(run_config)
        self._test = None if test is None else federation_from([test]).train
        labels = self._test is None or is_label(self._test.y)
        model = build_model()
        self._classes = outputs(model, self._test) if self._test and labels else None
        self._objective = objective_of(build_model, settings, loss, 0 if labels else None)
        if self._test is not None:
            self._objective.check(self._test)
        self.rounds, self.theta = settings.rounds, self._objective.theta0
        self._open(Path(settings.out), choice)
        facts = self.record.facts()
        members = Members(grid, facts.names)
        members.gather(settings.clients, settings.wait)
        kept = self.record.vectors()
        N = int(kept[OWN_N]) if OWN_N in kept else len(members.names)
        members.names = members.names[:N]
        theta0 = self._objective.theta0

        def builds(N: int) -> Any:
            return settings.build(N, self._objective, choice)

        algo = builds(N)
        self._check(algo)
        self._books = Books(theta0, N, self.record.vectors)
        run = facts.federation
        self._post = Post(
            grid, run, algo, theta0, self._books, members, settings.deadline, settings.at_least
        )
        self._live = Live(self._post, builds, theta0, settings)
        self._after = last_step(self.record, algo, theta0)
        self.record.note(**describe(algo, self._objective).as_dict())

    def _open(self, path: Path, choice: Choice | None) -> None:
        settings = self._settings
        identity = {
            "algorithm": repr((settings.algorithm, settings.compressor, dict(settings.options)))
            if choice is None
            else ADDRESS.sub("", repr(choice)),
            "constants": repr((settings.per_round, settings.local_steps, settings.rounds)),
            "schedule": repr((settings.schedule, settings.concurrency, settings.opening)),
            "seed": str(settings.seed),
            "batch size": str(settings.batch_size),
            "first model": fingerprint(self._objective.theta0.numpy()),
        }
        if path.exists():
            self.record = continued(path, identity)
            return
        facts = {"state": "running", "fleet": "flower", "identity": identity}
        more = {"federation": new_run_id(), "flower": settings.asdict()}
        self.record = Record.create(path, Facts.read({**facts, **more}))

    def _check(self, algo: Any) -> None:
        settings, sys = self._settings, algo.sys
        if settings.schedule == "buffered":
            if len(algo.round()) != 1:
                raise ConfigError(
                    f"{settings.algorithm} needs {len(algo.round())} exchanges a round; the "
                    "buffered schedule allows one"
                )
            if settings.concurrency and not sys.S <= settings.concurrency <= sys.N:
                raise ConfigError(
                    f"concurrency = {settings.concurrency} is out of range; give a number from "
                    f"S = {sys.S} to N = {sys.N}"
                )
        if len(algo.opening()) > 1:
            raise ConfigError(
                f"{settings.algorithm} has an opening of {len(algo.opening())} exchanges; in a "
                "deployment it may have one"
            )

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Train; whatever ends it, every whole step is committed."""
        end = {"state": "interrupted"}
        try:
            yield from self._rows()
            end = {"state": "done"}
        except WireError as error:
            end = {"state": "diverged", "reason": str(error)}
            raise
        finally:
            with suppress(RecordError):
                self.record.note(**end)
            self.record.release()

    def _rows(self) -> Iterator[dict[str, Any]]:
        settings, unheard = self._settings, silent_steps(self.record)
        if self._after is not None:
            self.theta = self._after.server.theta
        steps = self._live.steps(self._after)
        while True:
            began = time.perf_counter()
            step = next(steps, None)
            if step is None:
                return
            seconds = time.perf_counter() - began
            refuse_non_finite("theta", float(step.server.theta.sum()), step.t)
            due = (step.t + 1) % settings.eval_every == 0 or step.t + 1 == settings.rounds
            scores = self._scores(step.server.theta) if due else {}
            self._commit(step, seconds, scores)
            yield {
                "t": step.t,
                "seconds": seconds,
                "clients": len(step.clients),
                "N": self._books.N,
                "absent": step.absent,
                **scores,
            }
            unheard = 0 if step.clients or step.t < 0 else unheard + 1
            if unheard == PATIENCE:
                raise FleetError(
                    f"nobody was heard for {PATIENCE} steps in a row, up to t = {step.t}; see who "
                    "is connected, and start the run again: it goes on"
                )

    def _scores(self, theta: Vec) -> dict[str, float]:
        scores: dict[str, float] = {}
        if self._test is not None:
            batches = self._test.batches(EVALUATION_BATCH)
            with one_thread():
                scores = scores_on(self._objective, theta, batches, self._classes)
        if self._settings.evaluate_on_clients:
            scores |= self._post.scores(theta)
        return scores

    def _commit(self, step: Step, seconds: float, scores: Mapping[str, float]) -> None:
        """The step, the server, its books and N: all or nothing."""
        self.record.note(names=self._post.members.names)
        server = {**arrays(step.server), OWN_N: np.array(self._books.N)}
        self.record.commit(
            [line_of(step, seconds, scores)], states={SERVER: server, **self._books.new()}
        )
        self.record.settle()  # clients are told of accepted replies only after that
        self._books.written()
        self.theta = step.server.theta
        if self.record.facts().system["N"] != self._books.N:
            self.record.note(**describe(self._post.algo, self._objective).as_dict())

    @property
    def theta_sha256(self) -> str:
        return hashlib.sha256(self.theta.cpu().numpy().tobytes()).hexdigest()
