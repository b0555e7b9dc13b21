"""A deployed federation: the engine and the loops, with Flower's nodes as their fleet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid

from tunefree.core import Algorithm, Vec
from tunefree.data.clients import apart, federation_from
from tunefree.data.samples import Samples
from tunefree.errors import ConfigError, FleetError
from tunefree.fleet.job import Fleet
from tunefree.fleet.states import Stored
from tunefree.flower.grid import GridFleet
from tunefree.flower.ledger import Ledger
from tunefree.flower.membership import Members
from tunefree.flower.nodes import Nodes
from tunefree.flower.private import Private
from tunefree.flower.run_file import Plan, has_started
from tunefree.flower.settings import Builder, settings_from
from tunefree.flower.transport import Transport
from tunefree.methods import registry
from tunefree.methods.own import Maker
from tunefree.models import seeded
from tunefree.models.answers import inputs_of
from tunefree.models.objective import EVALUATION_BATCH, Objective, one_thread
from tunefree.models.own import OwnParts
from tunefree.models.targets import LearningTask, Loss, default_loss, task_of
from tunefree.record import Record
from tunefree.record.provenance import describe
from tunefree.run.assemble import with_noise
from tunefree.run.engine import Parts, Training, ready_to_go_back
from tunefree.run.evaluate import scores_on
from tunefree.schedule.exchange import Release, Step
from tunefree.schedule.simulate import play
from tunefree.settings import numbers


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
        make: Maker | None = None,
    ) -> None:
        self.waiting = True  # for its clients
        self._given = given = settings_from(run_config)
        self._settings = settings = given.first()
        module = seeded(build_model, settings.seed)
        task = LearningTask(loss or default_loss(0))  # not used if the server evaluates nothing
        self._test: Samples | None = None
        if test is not None:
            samples = apart(federation_from([test], takes=inputs_of(module))).train
            task = task_of(module, samples, loss)
            self._test = samples.with_targets(task.targets)
        self._classes = task.classes
        self.objective = Objective.of(settings, module, task.loss)
        if self._test is not None:
            self.objective.check(self._test)
            if self.objective.own is not None:
                raise ConfigError(
                    "the server has no test for a model of which parts stay with the clients",
                    "omit `test`, and set evaluate_on_clients = true: clients score their own",
                )
        self._plan = Plan(given, self.objective, make)
        self._plan.refuse_impossible()
        self._promise = self._plan.promise
        self._record = self._open(Path(settings.out), given.own.from_round)
        if self._promise is not None:
            self._record.note(privacy=self._promise.facts(deployed=True))
        facts, transport, theta0 = self._record.facts(), Transport(grid), self.objective.theta0
        private = bool(settings.epsilon)
        self.nodes = Nodes(transport, facts.names, facts.sizes, need_place=private)
        self._private: Private | None = None
        if guarantee := self._plan.promised(facts.privacy):
            self._record.note(privacy=guarantee.facts(True, settings.secure))
            promise = guarantee, self._plan.smallest, settings.clip or None
            self._private = Private(self._record, *promise)
        ledger = Ledger(self._algorithm, theta0, self._record.vectors, settings.secure)
        by_epochs = settings.local_epochs > 0
        self.fleet = GridFleet(
            transport,
            self.nodes,
            ledger,
            theta0,
            facts.federation,
            given.own,
            by_epochs,
            self._private,
        )
        self.fleet.own = self.objective.own is not None

    def _open(self, path: Path, back: int) -> Record:
        """The run file, gone back if its run config says so, but not again at every start."""
        there = has_started(path)
        with closing(Record.open(path)) if there else nullcontext() as reader:
            before = reader.facts().from_round if reader else -1
        goes = there and back not in (before, -1)
        if goes and self._settings.secure:
            raise ConfigError(
                "is not possible with secure sums: nodes take part in each round once",
                "start a new run",
                setting="from_round",
                value=back,
            )
        if goes:
            ready_to_go_back(path, back)
        record = self._plan.open()
        if goes:
            record.go_back(back - 1)
        if back != before:
            record.note(from_round=back)
        return record

    def run(self) -> Training:
        """Wait for the clients; returns the run, ready to start or to continue."""
        settings, own, fleet = self._settings, self._given.own, self.fleet
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
        if self._private:
            self._plan.note_noise(self._private.guarantee)
        self.members = Members(fleet, settings, own.wait, self._facts)
        self._record.note(**self.members.facts())
        spent = self._promise and self._promise.after_rounds
        given = self, self.objective, self._record, self._evaluate, settings
        run = Training(Parts(*given, self._private.start if self._private else None, spent))
        run.readmit(set(numbers(own, "readmit")) & set(self._record.quarantined()))
        if without := numbers(own, "without"):
            run.leave_out(without)
        return run

    def start(self, stored: Stored) -> Fleet:
        """The fleet, which is there already and has its clients' states."""
        if not self._settings.secure:
            return self.fleet
        from tunefree.flower.secure import SecureFleet
        from tunefree.secure.roster import read_roster

        roster, run = read_roster(Path(self._given.own.roster)), self._record.facts().federation
        return SecureFleet(self.fleet, roster, run, Path(self._settings.out), self.objective.theta0)

    def steps(
        self, fleet: Fleet, theta0: Vec, after: Step | None, release: Release | None = None
    ) -> Iterator[Step]:
        """The steps of the schedule, in real time."""
        schedule = self._settings.scheduling
        return play(fleet, self.members, self.members, theta0, schedule, after, release)

    def _algorithm(self, N: int) -> Algorithm:
        """The algorithm while N clients are registered."""
        epochs = self._settings.local_epochs
        K = self._given.at(N).system_for(self.nodes.sizes(N)).K if epochs else 1
        algo = self._plan.algorithm(N, K)
        if self._promise is not None:
            return with_noise(algo, self._promise.noise_on_sum(algo.sys))
        return with_noise(algo, self._private.guarantee.release.sigma) if self._private else algo

    def _facts(self, algo: Algorithm) -> dict[str, object]:
        """The facts that depend on how many clients there are."""
        now = self._given.at(algo.sys.N).asdict()
        return {**describe(algo, self.objective).as_dict(), "settings": now}

    def _evaluate(self, theta: Vec, own: OwnParts) -> dict[str, float]:
        scores: dict[str, float] = {}
        if self._test is not None:
            batches = self._test.batches(EVALUATION_BATCH)
            with one_thread():
                scores = scores_on(self.objective, theta, batches, self._classes)
        return scores | (self.fleet.scores(theta) if self._given.own.evaluate_on_clients else {})
