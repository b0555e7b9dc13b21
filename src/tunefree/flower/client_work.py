"""What a client does with a message: read the download, work, save its state, answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flwr.app import Context, MetricRecord, RecordDict

from tunefree.core import OpeningDown, stream
from tunefree.data.clients import federation_from
from tunefree.data.samples import Federation
from tunefree.fleet.job import Job, Stage, exchanges
from tunefree.fleet.work import do
from tunefree.flower.client_state import ClientState, state_path
from tunefree.flower.envelope import Answer, Envelope, data_in, key_text, pack, unpack
from tunefree.flower.settings import Builder, settings_from
from tunefree.methods import registry
from tunefree.models import seeded
from tunefree.models.objective import EVALUATION_BATCH, Objective, one_thread
from tunefree.models.oracle import DataOracle
from tunefree.models.targets import Loss, task_of
from tunefree.run.assemble import MakeAlgorithm
from tunefree.run.evaluate import scores_on
from tunefree.wire import decode, encode

SERVER = "the server"


@dataclass(frozen=True)
class ClientSide:
    """The app on a client's machine; its data and its model are loaded when first needed."""

    context: Context
    build_model: Builder
    load_data: Callable[[Context], Any]
    loss: Loss | None
    algorithm: MakeAlgorithm | None

    @property
    def by_size(self) -> bool:
        """Whether the server must know how many samples this client has."""
        return settings_from(self.context.run_config).by_size

    @cached_property
    def data(self) -> Federation:
        """This client's samples as a federation of one; its classes, if it has labels."""
        return federation_from([self.load_data(self.context)])

    @cached_property
    def objective(self) -> tuple[Objective, Federation]:
        """The model's objective, checked on this data, and the data as its loss needs them."""
        settings = settings_from(self.context.run_config).first()
        module = seeded(self.build_model, settings.seed)
        task = task_of(module, self.data.train, self.loss)
        data = task.of(self.data)
        objective = Objective(module, task.loss, "cpu", settings.kernels)
        objective.check(data.train)
        return objective, data


def do_job(content: RecordDict, side: ClientSide) -> RecordDict:
    """The reply to a job; the client's new state is on disk before the reply is sent."""
    envelope: Envelope = unpack(content, Envelope, SERVER)
    run, client, N, stage_name, t, number, ack, K = envelope
    node = side.context
    with closing(ClientState(state_path(node.node_config, node.node_id, run))) as stored:
        if not stored.settle(ack):
            return pack(Answer(run, client, t, number, 0, 0, lost=True), None)
        settings = settings_from(node.run_config).at(N)
        with one_thread():
            objective, data = side.objective
            algo = registry.configure(
                settings, settings.system_of(K), objective.shapes, side.algorithm
            )
            theta0 = objective.theta0
            stage: Stage = "opening" if stage_name == "opening" else "round"
            Down = exchanges(algo, stage, t)[number].Down
            down = decode(data_in(content, SERVER), Down, like=theta0)
            job = Job(client, t, stage, number, down)

            def oracle_of(job: Job) -> DataOracle:
                rng = stream(settings.seed, "client", *job.key)
                return DataOracle(
                    *(objective, data.train, data.parts[0], settings.batch_size, rng),
                    epochs=settings.local_epochs,
                )

            state, reply = do(algo, oracle_of, stored.state(algo.client(theta0)), job)
        stored.propose(key_text(job.key), job.t, state)
    answer = Answer(run, client, t, number, reply.n, reply.drawn, lost=False)
    return pack(answer, encode(reply.up))


def score(content: RecordDict, side: ClientSide) -> RecordDict:
    """The model's loss, and accuracy if there are classes, on this client's samples."""
    with one_thread():
        objective, data = side.objective
        theta = decode(data_in(content, SERVER), OpeningDown, like=objective.theta0).theta
        scores = scores_on(objective, theta, data.train.batches(EVALUATION_BATCH), data.classes)
    return RecordDict({"scores": MetricRecord(dict(scores))})
