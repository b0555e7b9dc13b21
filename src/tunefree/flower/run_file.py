"""The run file of a deployed federation: it is started, or resumed as the same run."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from tunefree.core import Algorithm, about, text_of
from tunefree.errors import ConfigError
from tunefree.flower.settings import Builder, RunConfig, settings_from
from tunefree.methods import registry
from tunefree.methods.own import Maker
from tunefree.models import seeded
from tunefree.models.objective import Objective
from tunefree.models.targets import Loss, default_loss
from tunefree.record import Facts, Record, is_locked
from tunefree.record.identity import changes
from tunefree.record.provenance import fingerprint
from tunefree.run.assemble import check_resumable, open_record
from tunefree.schedule.simulate import check

SAME = (  # settings that a resumed run shares with its start, besides `per_round` as it was given
    *("algorithm", "compressor", "decay", "weighting", "option", "sampling", "batch_size", "seed"),
    *("local_steps", "local_epochs", "schedule", "concurrency", "opening"),
)
MODEL = "first model"


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
    objective = Objective(module, loss or default_loss(0), "cpu", "plain")
    refuse_impossible(given, objective, make)
    path = folder / settings.out
    if has_started(path):
        refuse_another(path, given, objective, make)
    return settings.rounds


def refuse_impossible(given: RunConfig, objective: Objective, make: Maker | None) -> None:
    """Refuse what cannot run before anything is written, sent or started."""
    algo = algorithm(given, objective, make)
    check(given.first().scheduling, algo)
    if len(algo.opening()) > 1:
        raise ConfigError(
            f"{about(algo).title} has an opening of several exchanges; a deployed run allows only "
            "one"
        )


def algorithm(given: RunConfig, objective: Objective, make: Maker | None) -> Algorithm:
    """The algorithm for as few clients as the run may start with."""
    settings = given.at(max(given.own.clients, given.per_round))
    return registry.configure(settings, settings.system_of(1), objective.shapes, make)


def open_file(given: RunConfig, objective: Objective, make: Maker | None) -> Record:
    """The run file; a run that was started in it must be the same one, except for its rounds."""
    settings = given.first()
    path = Path(settings.out)
    now = identity(given, objective, make)
    facts = Facts(door="flower", fleet="flower", identity=now, federation=secrets.token_hex(8))
    if has_started(path):
        refuse_another(path, given, objective, make)
        return open_record(path, facts, settings.rounds, now)
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    return open_record(path, facts, settings.rounds)


def has_started(path: Path) -> bool:
    """Whether the file contains a step of a run; without one it may be started anew."""
    if not path.exists():
        return False
    if is_locked(path):  # by a server that still waits for its clients
        return True
    with closing(Record.open(path)) as record:
        return record.last() is not None or not record.facts().deployed


def refuse_another(path: Path, given: RunConfig, objective: Objective, make: Maker | None) -> None:
    """Refuse to resume a run as another one; only its rounds may change, if its steps allow it."""
    now, rounds = identity(given, objective, make), given.first().rounds
    with closing(Record.open(path)) as record:
        facts, state = record.facts(), record.state
    anew = (
        "start a new run: with another `out`, with another --folder of `tunefree flower up`, or "
        "after moving this file away"
    )
    if facts.identity.keys() != now.keys():
        problem = f"'{path}' was started by an earlier tunefree or elsewhere"
        raise ConfigError(f"{problem}, and cannot be resumed here", anew)
    model = "its first model was another one (`build_model` has changed)"
    found = [model if MODEL in each else each for each in changes(facts.identity, now)]
    if found and state != "diverged":
        problem = f"'{path}' cannot be resumed: {'; '.join(found)}"
        raise ConfigError(problem, f"change it back, or {anew}")
    before = given.for_rounds(facts.system.get("T", rounds))
    registry.check_rounds(*(algorithm(each, objective, make) for each in (before, given)))
    check_resumable(path, rounds, now)


def identity(given: RunConfig, objective: Objective, make: Maker | None) -> dict[str, Any]:
    """What a resumed run must have in common with its start."""
    settings = given.first()
    chosen = {name: getattr(settings, name) for name in SAME}
    if make is not None:
        chosen["algorithm"] = text_of(make)
    model = fingerprint(objective.theta0.numpy())
    return {**chosen, "per_round": given.given.get("per_round"), MODEL: model}
