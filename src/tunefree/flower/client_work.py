"""One job on a client: read the download, work, remember, answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from flwr.app import Context, MetricRecord, RecordDict

from tunefree.core import OpeningDown, Oracle, stream
from tunefree.data.clients import federation_from
from tunefree.data.samples import Federation
from tunefree.evaluate import scores_on
from tunefree.fleet.job import Job, Stage, exchanges
from tunefree.fleet.work import do
from tunefree.flower.client_state import Memory, memory_path
from tunefree.flower.envelope import Answer, Envelope, data_in, name, packed, unpacked
from tunefree.flower.settings import Builder, Choice, Settings, objective_of, settings_from
from tunefree.models.objective import EVALUATION_BATCH, Loss, Objective, is_label, outputs
from tunefree.models.oracle import DataOracle
from tunefree.models.threads import one_thread
from tunefree.wire import decode, encode

SERVER = "the server"


def done(
    content: RecordDict,
    context: Context,
    build_model: Builder,
    load_data: Callable[[Context], Any],
    loss: Loss | None,
    choice: Choice | None,
) -> RecordDict:
    """The reply to a job; the client's new state is on disk before it leaves."""
    letter: Envelope = unpacked(content, Envelope, SERVER)
    path = memory_path(context.node_config, context.node_id, letter.run)
    with closing(Memory(path)) as memory:
        if not memory.settle(letter.ack):
            lost = Answer(letter.run, letter.client, letter.t, letter.exchange, 0, 0, lost=True)
            return packed(lost, None)
        settings = settings_from(context.run_config)
        with one_thread():
            data = data_of(load_data(context))
            objective = ready(build_model, settings, loss, data)
            algo = settings.build(letter.N, objective, choice)
            theta0 = objective.theta0
            stage: Stage = "opening" if letter.stage == "opening" else "round"
            kind = type(exchanges(algo, stage)[letter.exchange].down(algo.server(theta0)))
            down = decode(data_in(content, SERVER), kind, like=theta0)
            job = Job(letter.client, letter.t, stage, letter.exchange, down)

            def oracle_of(job: Job) -> Oracle:
                rng = stream(settings.seed, "client", *job.key)
                return DataOracle(objective, data.train, data.parts[0], settings.batch_size, rng)

            state, result = do(algo, oracle_of, memory.state(algo.client(theta0)), job)
        memory.propose(name(job.key), job.t, state)
    answer = Answer(letter.run, job.client, job.t, job.exchange, result.n, result.drawn, lost=False)
    return packed(answer, encode(result.up))


def data_of(data: Any) -> Federation:
    """This client's samples as a federation of one."""
    return federation_from([data])


def classes_of(build_model: Builder, data: Federation) -> int | None:
    return outputs(build_model(), data.train) if is_label(data.train.y) else None


def ready(
    build_model: Builder, settings: Settings, loss: Loss | None, data: Federation
) -> Objective:
    """The objective, once it has been tried on this data."""
    classes = classes_of(build_model, data)
    objective = objective_of(build_model, settings, loss, classes)
    objective.check(data.train)
    return objective


def scored(
    content: RecordDict,
    context: Context,
    build_model: Builder,
    load_data: Callable[[Context], Any],
    loss: Loss | None,
) -> RecordDict:
    """The model's loss, and accuracy if there are classes, on this client's samples."""
    settings = settings_from(context.run_config)
    with one_thread():
        data = data_of(load_data(context))
        objective = ready(build_model, settings, loss, data)
        theta = decode(data_in(content, SERVER), OpeningDown, like=objective.theta0).theta
        classes = classes_of(build_model, data)
        batches = data.train.batches(EVALUATION_BATCH)
        scores = scores_on(objective, theta, batches, classes)
    return RecordDict({"scores": MetricRecord(dict(scores))})
