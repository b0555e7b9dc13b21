"""The run file of a deployed federation: it is started, or resumed as the same run."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from tunefree.core import Algorithm, Server, about, text_of
from tunefree.errors import ConfigError
from tunefree.flower.settings import Builder, RunConfig, settings_from
from tunefree.methods import registry
from tunefree.methods.own import Maker
from tunefree.models import seeded
from tunefree.models.objective import Objective
from tunefree.models.targets import Loss, default_loss
from tunefree.privacy.records import RecordGuarantee, deployed
from tunefree.record import Facts, Record, is_locked
from tunefree.record.provenance import MODEL, SAME, changes, fingerprint
from tunefree.run.assemble import check_resumable, open_record
from tunefree.schedule.simulate import check


def check_settings(
    run_config: Mapping[str, Any],
    folder: Path,
    build_model: Builder,
    loss: Loss | None = None,
    make: Maker | None = None,
) -> int:
    """Refuse what a server would refuse when run in this folder; returns the rounds.

    It needs no node.
    """
    given = settings_from(run_config)
    settings = given.first()
    module = seeded(build_model, settings.seed)
    plan = Plan(given, Objective(module, loss or default_loss(0), "cpu", "plain"), make)
    plan.refuse_impossible()
    path = folder / settings.out
    if has_started(path):
        plan.refuse_another(path)
    return settings.rounds


class Plan(NamedTuple):
    """A run before its clients are known: its settings, its first model and its method."""

    given: RunConfig
    objective: Objective
    make: Maker | None

    def algorithm(self, N: int, K: int = 1) -> Algorithm:
        """The algorithm for N clients; K counts only with local epochs."""
        return self.given.algorithm(N, K, self.objective.shapes, self.make)

    @property
    def smallest(self) -> Algorithm:
        """The algorithm for as few clients as the run may start with."""
        return self.algorithm(max(self.given.own.clients, self.given.per_round))

    @property
    def server(self) -> Server:
        """The server's state before the opening."""
        return self.smallest.server(self.objective.theta0)

    def refuse_impossible(self) -> None:
        """Refuse what cannot run before anything is written, sent or started."""
        algo = self.smallest
        check(self.given.first().scheduling, algo)
        if self.given.own.evaluate_on_clients and self.promise is not None:
            raise ConfigError(
                "asks for scores on clients' own data, which are not private",
                "evaluate on a public test set",
                setting="evaluate_on_clients",
                value=True,
            )
        if len(algo.opening()) > 1:
            raise ConfigError(
                f"{about(algo).title} has an opening of several exchanges; a deployed run allows "
                "only one"
            )

    @property
    def promise(self) -> RecordGuarantee | None:
        """What the run promises for each record, if anything."""
        return deployed(self.given.first(), self.smallest, self.objective.theta0)

    def open(self) -> Record:
        """The run file; a run that was started in it must be this one, except for its rounds."""
        settings, now = self.given.first(), self.identity
        path = Path(settings.out)
        facts = Facts(door="flower", fleet="flower", identity=now, federation=secrets.token_hex(8))
        if has_started(path):
            self.refuse_another(path)
            return open_record(path, facts, settings.rounds, now, self.server)
        for end in ("", "-wal", "-shm"):
            path.with_name(path.name + end).unlink(missing_ok=True)
        return open_record(path, facts, settings.rounds)

    def refuse_another(self, path: Path) -> None:
        """Refuse to resume another run than this; only its rounds may change, if its steps allow.

        A run that has diverged is refused for that reason.
        """
        now, rounds = self.identity, self.given.first().rounds
        with closing(Record.open(path)) as record:
            facts, state = record.facts(), record.state
        anew = (
            "start a new run: with another `out`, with another --folder of `tunefree flower up`, "
            "or after moving this file away"
        )
        if facts.identity.keys() != now.keys():
            problem = f"'{path}' was started by an earlier tunefree or elsewhere"
            raise ConfigError(f"{problem}, and cannot be resumed here", anew)
        model = "its first model was another one (`build_model` has changed)"
        found = [model if MODEL in each else each for each in changes(facts.identity, now)]
        if found and state != "diverged":
            problem = f"'{path}' cannot be resumed: {'; '.join(found)}"
            raise ConfigError(problem, f"change it back, or {anew}")
        before = {**self.given.given, "rounds": facts.system.get("T", rounds)}
        earlier = self._replace(given=self.given._replace(given=before))
        registry.check_rounds(earlier.smallest, self.smallest)
        check_resumable(path, rounds, now, self.server)

    @property
    def identity(self) -> dict[str, Any]:
        """What a resumed run must have in common with its start."""
        settings = self.given.first()
        chosen = {name: getattr(settings, name) for name in SAME}
        if self.make is not None:
            chosen["algorithm"] = text_of(self.make)
        model = fingerprint(self.objective.theta0.numpy())
        noise = {"noise on each gradient": self.promise.sigma} if self.promise else {}
        return {**chosen, "per_round": self.given.given.get("per_round"), MODEL: model, **noise}


def has_started(path: Path) -> bool:
    """Whether the file contains a step of a run; without one it may be started anew."""
    if not path.exists():
        return False
    if is_locked(path):  # by a server that still waits for its clients
        return True
    with closing(Record.open(path)) as record:
        return record.last() is not None or not record.facts().deployed
