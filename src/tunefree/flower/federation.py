"""The run of a deployed federation: the same engine and loops, with Flower's nodes as its fleet."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid

from tunefree.config import Config, with_sizes
from tunefree.core import Algorithm, Vec, about, text_of
from tunefree.data.clients import federation_from
from tunefree.data.samples import Samples
from tunefree.errors import ConfigError, FleetError
from tunefree.flower.changes import changes
from tunefree.flower.clock import LiveClock
from tunefree.flower.grid import GridFleet
from tunefree.flower.ledger import Ledger
from tunefree.flower.membership import Members
from tunefree.flower.nodes import Nodes
from tunefree.flower.settings import Builder, Settings, run_config_names, settings_from
from tunefree.flower.transport import Transport
from tunefree.methods import registry
from tunefree.models import seeded
from tunefree.models.objective import EVALUATION_BATCH, Objective
from tunefree.models.targets import Loss, Task, default_loss, task_of
from tunefree.models.threads import one_thread
from tunefree.record import Facts, Record, is_locked
from tunefree.record.provenance import describe, drawn, fingerprint
from tunefree.run.assemble import MakeAlgorithm
from tunefree.run.engine import Training, check_resumable, open_record
from tunefree.run.evaluate import scores_on
from tunefree.schedule.buffered import buffered
from tunefree.schedule.simulate import check
from tunefree.schedule.sync import synchronous


class Federation:
    """A deployed federation as its server has it: run file, nodes, and the jobs sent to them.

    What cannot run is refused before anything is sent. If its run file exists, its run is resumed.
    """

    def __init__(
        self,
        grid: Grid,
        run_config: Mapping[str, Any],
        build_model: Builder,
        test: Any = None,
        loss: Loss | None = None,
        make: MakeAlgorithm | None = None,
    ) -> None:
        self.waiting = True  # for its clients
        self._settings = settings = settings_from(run_config)
        self._make, self._config, own = make, settings.first(), settings.own
        module = seeded(build_model, self._config.run.seed)
        task = Task(loss or default_loss(0))  # not used if the server evaluates nothing
        self._test: Samples | None = None
        if test is not None:
            samples = federation_from([test]).train
            task = task_of(module, samples, loss)
            self._test = samples.with_targets(task.targets)
        self._classes = task.classes
        self.objective = Objective(module, task.loss, "cpu", self._config.run.kernels)
        if self._test is not None:
            self.objective.check(self._test)
        refuse_impossible(settings, self.objective, make)
        self._record = open_file(settings, self.objective, make)
        facts, theta0 = self._record.facts(), self.objective.theta0
        transport, epochs = Transport(grid), bool(self._config.system.epochs)
        self.nodes = Nodes(transport, facts.names, facts.sizes)
        ledger = Ledger(self._algorithm, theta0, self._record.vectors)
        self.fleet = GridFleet(transport, self.nodes, ledger, theta0, facts.federation, own, epochs)

    def run(self) -> Training:
        """Wait for the clients; returns the run, ready to start or to continue."""
        config, own, fleet = self._config, self._settings.own, self.fleet
        try:
            self.nodes.gather(own.clients, own.wait)
        except FleetError:
            self._record.close()  # so that it is free for the next start
            raise
        ledger = fleet.states
        ledger.N = ledger.N or len(self.nodes.names)
        self.nodes.names = self.nodes.names[: ledger.N]
        self.waiting = False
        registry.note_no_momentum(ledger.algo)
        seed, opening = config.run.seed, config.schedule.opening
        members = Members(fleet, seed, opening, config.system, self._facts)
        self._record.note(**members.facts())
        clock = LiveClock(fleet, members, own, config.schedule.concurrency, seed)
        loop = synchronous if config.schedule.name == "synchronous" else buffered
        return Training(
            lambda _, after: loop(fleet, members, clock, self.objective.theta0, opening, after),
            lambda _: fleet,
            members,
            self.objective,
            self._record,
            self._evaluate,
            eval_every=config.run.eval_every,
        )

    def _config_for(self, N: int) -> Config:
        """All settings while N clients are registered."""
        config = self._settings.at(N)
        return with_sizes(config, self.nodes.sizes(N)) if config.system.epochs else config

    def _algorithm(self, N: int) -> Algorithm:
        return registry.configure(self._config_for(N), self.objective.shapes, self._make)

    def _facts(self, algo: Algorithm) -> dict[str, object]:
        """The facts that depend on how many clients there are."""
        described = describe(algo, self.objective).as_dict()
        return {**described, "config": self._config_for(algo.sys.N).canonical()}

    def _evaluate(self, theta: Vec) -> dict[str, float]:
        scores: dict[str, float] = {}
        if self._test is not None:
            batches = self._test.batches(EVALUATION_BATCH)
            with one_thread():
                scores = scores_on(self.objective, theta, batches, self._classes)
        return (
            scores | self.fleet.scores(theta) if self._settings.own.evaluate_on_clients else scores
        )


def refuse_impossible(settings: Settings, objective: Objective, make: MakeAlgorithm | None) -> None:
    """Refuse what cannot run before anything is written, sent or started."""
    N = max(settings.own.clients, settings.per_round)
    with run_config_names():
        algo = registry.configure(settings.at(N), objective.shapes, make)
        check(settings.first().schedule, algo)
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
    settings = settings_from(run_config)
    config = settings.first()
    module = seeded(build_model, config.run.seed)
    objective = Objective(module, loss or default_loss(0), "cpu", "plain")
    refuse_impossible(settings, objective, make)
    path = folder / config.run.out
    if has_started(path):
        earlier = started_identity(path, settings, objective, make)
        refuse_changes(path, earlier)
        check_resumable(path, config.system.T, earlier)
    return config.system.T


def open_file(settings: Settings, objective: Objective, make: MakeAlgorithm | None) -> Record:
    """The run file; a run that was started in it must be the same one, except for its rounds."""
    config = settings.first()
    path, T = Path(config.run.out), config.system.T
    facts = Facts(
        door="flower",
        fleet="flower",
        identity=identity(settings, objective, make),
        federation=secrets.token_hex(8),
    )
    if not has_started(path):
        for end in ("", "-wal", "-shm"):
            path.with_name(path.name + end).unlink(missing_ok=True)
        return open_record(path, facts, T)
    earlier = started_identity(path, settings, objective, make)
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
    path: Path, settings: Settings, objective: Objective, make: MakeAlgorithm | None
) -> dict[str, str]:
    """The identity that the run in the file must have; it may have been started for another T."""
    config = settings.first()
    with closing(Record.open(path)) as record:
        started = settings.for_rounds(record.facts().system.get("T", config.system.T))
    if started.first() != config:
        before, after = (
            registry.configure(each, objective.shapes, make) for each in (started.first(), config)
        )
        registry.check_rounds(before, after)
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


def identity(
    settings: Settings, objective: Objective, make: MakeAlgorithm | None
) -> dict[str, str]:
    """What a resumed run must have in common with its start."""
    config = settings.first()
    chosen, schedule, S = config.algorithm, config.schedule, settings.given.get("system.S")
    E, options = config.system.epochs, registry.options_of(chosen)
    options.pop("compressor", None)
    own = text_of(make) + (repr(options) if options else "")
    return {
        "algorithm": repr((chosen.name, chosen.compressor, options)) if make is None else own,
        "constants": repr((S, f"{E} epochs" if E else config.system.K, config.system.T)),
        "schedule": repr((schedule.name, schedule.concurrency, schedule.opening))
        + drawn(config.system.sampling),
        "seed": str(config.run.seed),
        "batch size": str(config.data.batch_size),
        "first model": fingerprint(objective.theta0.numpy()),
    }
