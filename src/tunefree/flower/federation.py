"""The run of a deployed federation: the same engine and loops, with Flower's nodes as its fleet."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid

from tunefree.core import Algorithm, Vec, about, text_of
from tunefree.data.clients import federation_from
from tunefree.errors import ConfigError
from tunefree.flower.changes import changes
from tunefree.flower.clock import LiveClock
from tunefree.flower.grid import GridFleet
from tunefree.flower.ledger import COUNT, Ledger
from tunefree.flower.live import Live
from tunefree.flower.membership import Members
from tunefree.flower.nodes import Nodes
from tunefree.flower.settings import Builder, RunConfig, settings_from
from tunefree.flower.transport import Transport
from tunefree.methods import registry
from tunefree.models import seeded
from tunefree.models.objective import EVALUATION_BATCH, Objective, one_thread
from tunefree.models.targets import LearningTask, Loss, default_loss, task_of
from tunefree.record import Facts, Record, is_locked
from tunefree.record.provenance import describe, drawn, fingerprint
from tunefree.run.assemble import MakeAlgorithm
from tunefree.run.engine import Training, check_resumable, open_record
from tunefree.run.evaluate import scores_on
from tunefree.schedule.buffered import buffered
from tunefree.schedule.simulate import check
from tunefree.schedule.sync import synchronous


def federation(
    grid: Grid,
    run_config: Mapping[str, Any],
    build_model: Builder,
    test: Any = None,
    loss: Loss | None = None,
    make: MakeAlgorithm | None = None,
    live: Live | None = None,
) -> Training:
    """A run on the clients connected to the Grid; if its run file exists, the run is resumed.

    `live` gets the nodes and the fleet, for `tunefree flower status`.
    """
    given = settings_from(run_config)
    settings, own = given.first(), given.own
    held_out = None if test is None else federation_from([test]).train
    module = seeded(build_model, settings.seed)
    task = LearningTask(loss or default_loss(0))  # not used if the server evaluates nothing
    if held_out is not None:
        task = task_of(module, held_out, loss)
        held_out = held_out.with_targets(task.targets)
    objective = Objective(module, task.loss, "cpu", settings.kernels)
    if held_out is not None:
        objective.check(held_out)
    theta0 = objective.theta0

    refuse_impossible(given, objective, make)
    record = open_file(given, objective, make)
    facts = record.facts()
    transport = Transport(grid)
    nodes = Nodes(transport, facts.names, facts.sizes)
    if live is not None:
        live.nodes = nodes

    def build(N: int) -> Algorithm:
        now = given.at(N)
        sizes = nodes.sizes(N) if now.local_epochs else ()
        return registry.configure(now, now.system_for(sizes), objective.shapes, make)

    def system_facts(algo: Algorithm) -> dict[str, object]:
        now = given.at(algo.sys.N).asdict()
        return {**describe(algo, objective).as_dict(), "settings": now}

    nodes.gather(own.clients, own.wait)
    vectors = record.vectors()
    N = int(vectors[COUNT]) if COUNT in vectors else len(nodes.names)
    nodes.names = nodes.names[:N]
    ledger = Ledger(build, theta0, N, record.vectors)
    registry.note_no_momentum(ledger.algo)
    members = Members(*(nodes, ledger, settings.seed, settings.opening, system_facts, settings))
    fleet = GridFleet(transport, facts.federation, theta0, ledger, members, own)
    if live is not None:
        live.fleet = fleet
    clock = LiveClock(fleet, members, own, settings.concurrency, settings.seed)
    loop = synchronous if settings.schedule == "synchronous" else buffered
    record.note(**members.facts())

    def evaluate(theta: Vec) -> dict[str, float]:
        scores: dict[str, float] = {}
        if held_out is not None:
            with one_thread():
                scores = scores_on(
                    objective, theta, held_out.batches(EVALUATION_BATCH), task.classes
                )
        return scores | fleet.scores(theta) if own.evaluate_on_clients else scores

    return Training(
        lambda fleet, after: loop(fleet, members, clock, theta0, settings.opening, after),
        lambda _: fleet,
        members,
        objective,
        record,
        evaluate,
        eval_every=settings.eval_every,
    )


def refuse_impossible(given: RunConfig, objective: Objective, make: MakeAlgorithm | None) -> None:
    """Refuse what cannot run before anything is written, sent or started."""
    settings = given.at(max(given.own.clients, given.per_round))
    algo = registry.configure(settings, settings.system_of(1), objective.shapes, make)
    check(settings.scheduling, algo)
    if len(algo.opening()) > 1:
        raise ConfigError(
            f"{about(algo).title} has an opening of several exchanges; a deployed run allows only "
            "one"
        )


def check_settings(
    run_config: Mapping[str, Any],
    folder: Path,
    build_model: Builder,
    loss: Loss | None = None,
    make: MakeAlgorithm | None = None,
) -> int:
    """Refuse what `federation` would refuse when run in this folder; returns the rounds.

    It needs no node.
    """
    given = settings_from(run_config)
    settings = given.first()
    module = seeded(build_model, settings.seed)
    objective = Objective(module, loss or default_loss(0), "cpu", "plain")
    refuse_impossible(given, objective, make)
    path = folder / settings.out
    if has_started(path):
        earlier = started_identity(path, given, objective, make)
        refuse_changes(path, earlier)
        check_resumable(path, settings.rounds, earlier)
    return settings.rounds


def open_file(given: RunConfig, objective: Objective, make: MakeAlgorithm | None) -> Record:
    """The run file; a run that was started in it must be the same one, except for its rounds."""
    settings = given.first()
    path, T = Path(settings.out), settings.rounds
    facts = Facts(
        door="flower",
        fleet="flower",
        identity=identity(given, objective, make),
        federation=secrets.token_hex(8),
    )
    if not has_started(path):
        for end in ("", "-wal", "-shm"):
            path.with_name(path.name + end).unlink(missing_ok=True)
        return open_record(path, facts, T)
    earlier = started_identity(path, given, objective, make)
    refuse_changes(path, earlier)
    return open_record(path, facts, T, earlier)


def has_started(path: Path) -> bool:
    """Whether the file contains a step of a run; without one it may be started anew."""
    if not path.exists():
        return False
    if is_locked(path):  # by a server that still waits for its clients
        return True
    with closing(Record.open(path)) as record:
        return record.last() is not None or record.facts().door != "flower"


def started_identity(
    path: Path, given: RunConfig, objective: Objective, make: MakeAlgorithm | None
) -> dict[str, str]:
    """The identity that the run in the file must have; it may have been started for another T."""
    settings = given.first()
    with closing(Record.open(path)) as record:
        started = given.for_rounds(record.facts().system.get("T", settings.rounds))
    before = started.first()
    if before != settings:
        registry.check_rounds(
            *(
                registry.configure(each, each.system_of(1), objective.shapes, make)
                for each in (before, settings)
            )
        )
    return identity(started, objective, make)


def refuse_changes(path: Path, now: Mapping[str, str]) -> None:
    """Refuse to resume a run with other settings; the error names the run config's keys."""
    with closing(Record.open(path)) as record:
        before, state = record.facts().identity, record.state
    if state != "diverged" and (found := changes(before, now)):
        raise ConfigError(
            f"'{path}' cannot be resumed: {'; '.join(found)}; change it back, or start a new run: "
            "with another `out`, with another --folder of `tunefree flower up`, or after moving "
            "this file away"
        )


def identity(given: RunConfig, objective: Objective, make: MakeAlgorithm | None) -> dict[str, str]:
    """What a resumed run must have in common with its start."""
    settings = given.first()
    S, options = given.given.get("per_round"), registry.options_of(settings)
    options.pop("compressor", None)
    own = text_of(make) + (repr(options) if options else "")
    steps = settings.local_steps or f"{settings.local_epochs} epochs"
    return {
        "algorithm": own if make else repr((settings.algorithm, settings.compressor, options)),
        "constants": repr((S, steps, settings.rounds)),
        "schedule": repr((settings.schedule, settings.concurrency, settings.opening))
        + drawn(settings.sampling),
        "seed": str(settings.seed),
        "batch size": str(settings.batch_size),
        "first model": fingerprint(objective.theta0.numpy()),
    }
