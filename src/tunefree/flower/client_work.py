"""What a client does with a message: read the download, work, save its state, answer."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, cast

import torch
from flwr.app import Context, MetricRecord, RecordDict

from tunefree.core import Algorithm, OpeningDown, Oracle, stream
from tunefree.data.clients import apart, federation_from
from tunefree.data.samples import Federation
from tunefree.errors import ConfigError
from tunefree.fleet.job import Done, Job, Stage, exchanges
from tunefree.fleet.work import do
from tunefree.flower.client_state import ClientState, folder_of, state_path, take_part
from tunefree.flower.envelope import Answer, Envelope, data_in, key_text, pack, unpack
from tunefree.flower.record_ledger import DELTA, RecordLedger, limit_of
from tunefree.flower.settings import Builder, RunConfig, settings_from
from tunefree.methods.own import Maker
from tunefree.models import seeded
from tunefree.models.answers import inputs_of
from tunefree.models.objective import EVALUATION_BATCH, Objective, one_thread
from tunefree.models.oracle import DataOracle, refuse_single_samples
from tunefree.models.own import first_state
from tunefree.models.targets import Loss, task_of
from tunefree.privacy.clipping import cut
from tunefree.privacy.leaves import brought, refuse
from tunefree.privacy.noise import entropy
from tunefree.privacy.records import PrivateOracles, RecordGuarantee, deployed
from tunefree.run.evaluate import scores_on
from tunefree.settings import Settings, checked
from tunefree.wire import decode, encode

SERVER = "the server"


@dataclass
class ClientSide:
    """The app on a client's machine, for one run: what its messages need is made once."""

    context: Context
    build_model: Builder
    load_data: Callable[[Context], Any]
    loss: Loss | None
    make: Maker | None

    @cached_property
    def given(self) -> RunConfig:
        return settings_from(self.context.run_config)

    @cached_property
    def settings(self) -> Settings:
        """The settings; the number of clients, and with epochs K, come with each job."""
        return self.given.first()

    @cached_property
    def data(self) -> Federation:
        """This client's samples as a federation of one; its classes, if it has labels."""
        data = [self.load_data(self.context)]
        return apart(federation_from(data, takes=inputs_of(self.module)))

    @cached_property
    def module(self) -> torch.nn.Module:
        """The initial model."""
        return seeded(self.build_model, self.settings.seed)

    @cached_property
    def objective(self) -> tuple[Objective, Federation]:
        """The model's objective, checked on this data, and the data as its loss needs them."""
        module = self.module
        task = task_of(module, self.data.train, self.loss)
        data = task.of(self.data)
        objective = Objective.of(self.settings, module, task.loss)
        objective.check(data.train)
        refuse_single_samples(objective, [len(data.train)], self.settings.batch_size)
        return objective, data

    @cached_property
    def algorithm(self) -> Callable[[int, int], Algorithm]:
        """The algorithm for N clients and K local steps, made anew only if these change."""
        shapes = self.objective[0].shapes
        return lru_cache(maxsize=1)(lambda N, K: self.given.algorithm(N, K, shapes, self.make))

    def oracle_of(self, job: Job) -> Oracle:
        (objective, data), settings = self.objective, self.settings
        rng = stream(settings.seed, "client", *job.key)
        if self.promise is not None:
            make = PrivateOracles(self.promise, entropy)
            return make(objective, data.train, data.parts[0], rng, job)
        given = data.train, data.parts[0], settings.batch_size, rng, settings.local_epochs
        return DataOracle(objective, *given, settings.accumulate, settings.clip_gradients)

    @cached_property
    def promise(self) -> RecordGuarantee | None:
        """What the run promises for each record here; nothing else is done if there is a limit."""
        (objective, data), settings = self.objective, self.settings
        if settings.epsilon and settings.unit == "record":
            algo = self.algorithm(settings.clients, settings.local_steps or 1)
            objective.check_alone(data.train)
            return deployed(settings, algo, objective.theta0)
        if math.isfinite(self.limit):
            raise ConfigError(
                f"this node's config has limit = {self.limit:g}, and the run does not protect "
                "records",
                "set {epsilon} and {unit} = record in the run config",
            )
        return None

    @property
    def own_limit(self) -> int:
        """How many private uploads leave this client at most, by its node's config; 0: no limit."""
        limit = self.context.node_config.get("participations", 0)
        return cast("int", checked("participations", limit, int, {"least": 0, "below": math.inf}))

    @property
    def tells_size(self) -> bool:
        """Whether the server may know how many samples this client has."""
        return self.given.by_size and math.isinf(self.limit) and not self.own_limit

    @property
    def limit(self) -> float:
        """The epsilon that may be spent on this client's records, in all runs together."""
        return limit_of(self.context.node_config)

    def ledger(self) -> AbstractContextManager[RecordLedger | None]:
        """This node's ledger, if the run protects records."""
        if self.promise is None:
            return nullcontext()
        config = self.context.node_config
        folder, delta = folder_of(config, self.context.node_id), float(config.get("delta", DELTA))
        return closing(RecordLedger(folder, self.limit, delta))

    def take_part(self, job: bytes) -> None:
        """Count an upload, in all private runs together, before it is made."""
        config, run = self.context.node_config, sorted(self.context.run_config.items())
        take_part(folder_of(config, self.context.node_id), repr(run).encode() + job, self.own_limit)

    def states(self, run: str) -> ClientState:
        return ClientState(state_path(self.context.node_config, self.context.node_id, run))


def reply_to(content: RecordDict, side: ClientSide) -> RecordDict:
    """The reply to a job."""
    answer, _, reply = do_job(content, side)
    return pack(answer, None if answer.lost else encode(reply.up))


def common(envelope: Envelope) -> tuple[object, ...]:
    """The words that all clients get."""
    return envelope._replace(client=0, ack="")


def do_job(content: RecordDict, side: ClientSide) -> tuple[Answer, Job, Done]:
    """The answer's words, the job and its reply; the new state is on disk before it is sent."""
    envelope: Envelope = unpack(content, Envelope, SERVER)
    run, client, N, stage_name, t, exchange, ack, K, clip = envelope
    private = bool(side.settings.epsilon)
    if private:
        objective, samples = side.objective
        refuse(side.algorithm(N, K), side.settings, brought(objective.loss, samples))
    elif side.own_limit:
        raise ConfigError(
            "this client takes part in private runs only: its node's config has participations"
        )
    with closing(side.states(run)) as states, one_thread(), side.ledger() as ledger:
        objective, algo = side.objective[0], side.algorithm(N, K)
        theta0 = objective.theta0
        stage: Stage = "opening" if stage_name == "opening" else "round"
        Down = exchanges(algo, stage, t)[exchange].Down
        data = data_in(content, SERVER)
        job = Job(client, t, stage, exchange, decode(data, Down, like=theta0))
        asked = hashlib.sha256(repr(envelope).encode() + data).hexdigest()
        if ledger and (again := ledger.reply(run, asked)) is not None:
            Up = exchanges(algo, stage, t)[exchange].Up
            same = Done(job.key, decode(again, Up, like=theta0), 1, 0)
            return Answer(run, client, t, exchange, 1, 0, lost=False), job, same
        if private and not ledger:
            side.take_part(repr(envelope._replace(ack="")).encode() + data)
        state = states.after(ack, first_state(algo, theta0, objective.own))
        if state is None:
            lost = Done(job.key, None, 0, 0)
            return Answer(run, client, t, exchange, 0, 0, lost=True), job, lost
        if ledger and side.promise:
            ledger.enter(run, asked, side.promise.of_job(job), side.promise.in_all)
        state, reply = do(algo, side.oracle_of, state, job)
        states.propose(ack, key_text(job.key), t, state)
        n, drawn = (1, 0) if private else (reply.n, reply.drawn)
        reply = reply._replace(up=cut(reply.up, clip) if clip else reply.up)
        if ledger:
            ledger.keep(run, asked, encode(reply.up))
    return Answer(run, client, t, exchange, n, drawn, lost=False), job, reply


def score(content: RecordDict, side: ClientSide) -> RecordDict:
    """The model's loss, and accuracy if there are classes, on this client's samples."""
    if side.promise is not None or side.settings.epsilon or side.own_limit:
        raise ConfigError("scores on this client's own data are not private", "do not ask for them")
    with one_thread():
        objective, data = side.objective
        theta = decode(data_in(content, SERVER), OpeningDown, like=objective.theta0).theta
        if objective.own is not None:
            asked: Envelope = unpack(content, Envelope, SERVER)
            first = first_state(side.algorithm(asked.N, asked.K), objective.theta0, objective.own)
            with closing(side.states(asked.run)) as states:
                kept = states.after(asked.ack, first)
            objective.put(None if kept is None else kept.own)
        scores = scores_on(objective, theta, data.train.batches(EVALUATION_BATCH), data.classes)
    return RecordDict({"scores": MetricRecord(dict(scores))})
