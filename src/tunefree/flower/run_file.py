"""The run file of a deployed federation: it is started, or resumed as the same run."""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tunefree.core import Algorithm, Server, about, text_of
from tunefree.errors import ConfigError
from tunefree.fleet import summed
from tunefree.flower.private import LOUDEST
from tunefree.flower.settings import Builder, RunConfig, settings_from
from tunefree.methods import registry
from tunefree.methods.own import Maker
from tunefree.models import seeded
from tunefree.models.objective import Objective
from tunefree.models.targets import Loss, default_loss
from tunefree.privacy.leaves import SCORES, refuse
from tunefree.privacy.plan import plan
from tunefree.privacy.promise import Guarantee, Privacy
from tunefree.privacy.records import RecordGuarantee, deployed
from tunefree.privacy.release import bound_of, in_simulation
from tunefree.record import Facts, Record, is_locked
from tunefree.record.provenance import MODEL, SAME, changes, fingerprint
from tunefree.run.assemble import check_resumable, open_record
from tunefree.schedule.simulate import check
from tunefree.settings import Settings

NOISY_SUMS: tuple[tuple[Callable[[Algorithm, Settings, bool], bool], str, str], ...] = (
    (
        lambda algo, given, coins: given.unit == "record",
        "noise on records needs no server that is trusted, and was not tested with sums",
        "set {unit} = client, or omit {secure}",
    ),
    (
        lambda algo, given, coins: bound_of(algo, given.clip or None) is None,
        "which norms were within a threshold is in no sum, so the median norm cannot be followed",
        "give {clip}, the largest norm, or choose polarfl_stateless, whose uploads have a bound",
    ),
    (
        lambda algo, given, coins: coins,
        "a sum of too few clients is not opened, and that would tell of the others' coins",
        "omit {coins}: a client's participations are limited then",
    ),
)
log = logging.getLogger("flwr")  # shown by `flwr run --stream`


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
    run = Plan(given, Objective.of(settings, module, loss or default_loss(0)), make)
    run.refuse_impossible()
    path = folder / settings.out
    if has_started(path):
        run.refuse_another(path)
    return settings.rounds


@dataclass(frozen=True)
class Plan:
    """A run before its clients are known: its settings, its first model and its method."""

    given: RunConfig
    objective: Objective
    make: Maker | None

    def algorithm(self, N: int, K: int = 1) -> Algorithm:
        """The algorithm for N clients; K counts only with local epochs."""
        return self.given.algorithm(N, K, self.objective.shapes, self.make)

    @cached_property
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
        settings, own = self.given.first(), self.given.own
        check(settings.scheduling, algo)
        noisy = settings.secure and settings.epsilon > 0
        summed.refuse(algo, replace(settings, epsilon=0.0) if noisy else settings)
        if settings.secure and (own.evaluate_on_clients or not own.roster):
            raise ConfigError(
                "goes without scores on clients' data, and with a roster",
                "omit {evaluate_on_clients}, and give {roster}, the nodes' file",
                setting="secure",
                value=True,
            )
        if len(algo.opening()) > 1:
            raise ConfigError(
                f"{about(algo).title} has an opening of several exchanges; a deployed run allows "
                "only one"
            )
        if own.coins and not settings.epsilon:
            raise ConfigError("belongs to privacy", "give {epsilon} too", setting="coins")
        if privacy := Privacy.of(settings):
            refuse(algo, settings, [SCORES] * own.evaluate_on_clients)
        for found, problem, remedy in NOISY_SUMS if noisy else ():
            if found(algo, settings, own.coins):
                raise no_noise_on_sums(problem, remedy)
        if privacy and self.promise is None:
            guarantee = privacy.deployed(algo.sys, own.coins)
            in_simulation(guarantee, algo, 0, settings.clip or None)
            if noisy and guarantee.release.sigma > LOUDEST:
                coarse = f"nodes refuse a scale so coarse, for noise of over {LOUDEST} uploads"
                raise no_noise_on_sums(coarse, "raise {epsilon}, or lower {rounds}")

    def promised(self, before: Mapping[str, Any]) -> Guarantee | None:
        """The noise that keeps the promise; of a run that was started, its own noise.

        `before` is what its file says of it. A larger budget may be given than at the start.
        """
        privacy = Privacy.of(self.given.first())
        if privacy is None or privacy.unit == "record":
            return None
        sys = self.smallest.sys
        if not before:
            return privacy.deployed(sys, self.given.own.coins)
        guarantee = Guarantee.stored(before).under(privacy.epsilon)
        return guarantee.checked(sys, remedy="give a larger {epsilon}")

    def note_noise(self, guarantee: Guarantee) -> None:
        """Warn if even the mean of all rounds would be mostly noise."""
        (N, S, K, T), sizes = self.smallest.sys, list(map(math.prod, self.objective.shapes))
        limit = None if guarantee.release.q < 1 else guarantee.limit
        promise = Privacy(guarantee.epsilon, delta=guarantee.delta, participations=limit)
        try:
            plan(promise, sizes, N, K, [S], [T])
        except ConfigError as error:
            log.warning("%s", error)

    @property
    def promise(self) -> RecordGuarantee | None:
        """What the run promises for each record, if anything."""
        return deployed(self.given.first(), self.smallest, self.objective.theta0)

    def open(self) -> Record:
        """The run file; a run that was started in it must be this one, except for its rounds."""
        settings, now = self.given.first(), self.identity
        path = Path(settings.out)
        facts = Facts(door="flower", fleet="flower", identity=now, federation=secrets.token_hex(8))
        if guarantee := self.promised({}):
            facts = replace(facts, privacy=guarantee.facts(True, settings.secure))
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
        if bool(facts.privacy) != bool(self.given.first().epsilon):
            problem = f"'{path}' was started with{'' if facts.privacy else 'out'} privacy"
            raise ConfigError(f"{problem}, and cannot be resumed otherwise", anew)
        if facts.identity.keys() != now.keys():
            problem = f"'{path}' was started by an earlier tunefree or elsewhere"
            raise ConfigError(f"{problem}, and cannot be resumed here", anew)
        model = "its first model was another one (`build_model` has changed)"
        found = [model if MODEL in each else each for each in changes(facts.identity, now)]
        if found and state != "diverged":
            problem = f"'{path}' cannot be resumed: {'; '.join(found)}"
            raise ConfigError(problem, f"change it back, or {anew}")
        before = {**self.given.given, "rounds": facts.system.get("T", rounds)}
        earlier = replace(self, given=self.given._replace(given=before))
        registry.check_rounds(earlier.smallest, self.smallest)
        self.promised(facts.privacy)
        check_resumable(path, rounds, now, self.server)

    @property
    def identity(self) -> dict[str, Any]:
        """What a resumed run must have in common with its start."""
        settings = self.given.first()
        chosen = {name: getattr(settings, name) for name in SAME}
        if self.make is not None:
            chosen["algorithm"] = text_of(self.make)
        if settings.epsilon:  # which may be raised
            own = self.given.own
            names = ("delta", "clip", "participations")
            chosen |= {name: getattr(settings, name) for name in names}
            chosen |= {"coins": own.coins, "clients": own.clients}
        model = fingerprint(self.objective.initial.numpy())
        noise = {"noise on each gradient": self.promise.sigma} if self.promise else {}
        return {**chosen, "per_round": self.given.given.get("per_round"), MODEL: model, **noise}


def no_noise_on_sums(problem: str, remedy: str) -> ConfigError:
    problem = f"is not possible with {{epsilon}} here: {problem}"
    return ConfigError(problem, remedy, setting="secure", value=True)


def has_started(path: Path) -> bool:
    """Whether the file contains a step of a run; without one it may be started anew."""
    if not path.exists():
        return False
    if is_locked(path):  # by a server that still waits for its clients
        return True
    with closing(Record.open(path)) as record:
        return record.last() is not None or not record.facts().deployed
