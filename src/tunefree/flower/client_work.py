"""What a client does with a message: read the download, work, remember, answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flwr.app import Context, MetricRecord, RecordDict

from tunefree import algorithms
from tunefree.api import MakeAlgorithm
from tunefree.core import OpeningDown, stream
from tunefree.data.clients import federation_from
from tunefree.data.samples import Federation
from tunefree.evaluate import scores_on
from tunefree.fleet.job import Job, Stage, exchanges
from tunefree.fleet.work import do
from tunefree.flower.client_state import ClientState, state_path
from tunefree.flower.envelope import Answer, Envelope, data_in, key_text, pack, unpack
from tunefree.flower.settings import Builder, settings_from
from tunefree.models import seeded
from tunefree.models.objective import EVALUATION_BATCH, Loss, Objective, classes_of, default_loss
from tunefree.models.oracle import DataOracle
from tunefree.models.threads import one_thread
from tunefree.wire import decode, encode

SERVER = "the server"


@dataclass(frozen=True)
class ClientSide:
    """The app on a client's machine; its data and its model are loaded when first asked for."""

    context: Context
    build_model: Builder
    load_data: Callable[[Context], Any]
    loss: Loss | None
    algorithm: MakeAlgorithm | None

    @cached_property
    def data(self) -> Federation:
        """This client's samples as a federation of one; its classes, if it has labels."""
        return federation_from([self.load_data(self.context)])

    @cached_property
    def objective(self) -> tuple[Objective, int | None]:
        """The model's objective, once it has been tried on this data, and the number of classes."""
        run = settings_from(self.context.run_config).first().run
        module = seeded(self.build_model, run.seed)
        classes = classes_of(module, self.data.train)
        objective = Objective(module, self.loss or default_loss(classes), "cpu", run.kernels)
        objective.check(self.data.train)
        return objective, classes


def do_job(content: RecordDict, side: ClientSide) -> RecordDict:
    """The reply to a job; the client's new state is on disk before it leaves."""
    envelope: Envelope = unpack(content, Envelope, SERVER)
    run, client, N, stage_name, t, number, ack = envelope
    node = side.context
    with closing(ClientState(state_path(node.node_config, node.node_id, run))) as memory:
        if not memory.settle(ack):
            return pack(Answer(run, client, t, number, 0, 0, lost=True), None)
        config = settings_from(node.run_config).at(N)
        with one_thread():
            data, (objective, _) = side.data, side.objective
            algo = algorithms.configure(config, objective.shapes, side.algorithm)
            theta0 = objective.theta0
            stage: Stage = "opening" if stage_name == "opening" else "round"
            Down = exchanges(algo, stage)[number].Down
            down = decode(data_in(content, SERVER), Down, like=theta0)
            job = Job(client, t, stage, number, down)

            def oracle_of(job: Job) -> DataOracle:
                rng = stream(config.run.seed, "client", *job.key)
                return DataOracle(objective, data.train, data.parts[0], config.data.batch_size, rng)

            state, reply = do(algo, oracle_of, memory.state(algo.client(theta0)), job)
        memory.propose(key_text(job.key), job.t, state)
    answer = Answer(run, client, t, number, reply.n, reply.drawn, lost=False)
    return pack(answer, encode(reply.up))


def score(content: RecordDict, side: ClientSide) -> RecordDict:
    """The model's loss, and accuracy if there are classes, on this client's samples."""
    with one_thread():
        data, (objective, classes) = side.data, side.objective
        theta = decode(data_in(content, SERVER), OpeningDown, like=objective.theta0).theta
        scores = scores_on(objective, theta, data.train.batches(EVALUATION_BATCH), classes)
    return RecordDict({"scores": MetricRecord(dict(scores))})
