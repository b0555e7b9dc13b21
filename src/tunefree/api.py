"""The front doors: from settings, or from a model and clients, to a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import nn

import tunefree.models
from tunefree import algorithms, evaluate
from tunefree.config import (
    AlgorithmSettings,
    Config,
    DataSettings,
    FleetName,
    Kernels,
    RunSettings,
    Sampling,
    Schedule,
    SystemSettings,
    at_door,
    config_from,
    probabilities,
    with_rounds,
    with_sizes,
)
from tunefree.core import Algorithm, System
from tunefree.data import partition, sources
from tunefree.data.clients import federation_from
from tunefree.data.samples import Dataset, Federation, check_federation
from tunefree.data.validation import held_out
from tunefree.errors import ConfigError
from tunefree.evaluate import Evaluator
from tunefree.fleet import choice
from tunefree.fleet.states import States
from tunefree.fleet.work import DataClients
from tunefree.models.objective import Objective
from tunefree.models.targets import Loss, default_loss, task_of
from tunefree.progress import show_progress
from tunefree.record import Record, Row
from tunefree.record.provenance import describe, identify
from tunefree.run import Run, open_record
from tunefree.schedule.membership import Everybody
from tunefree.schedule.simulate import check, simulate

MakeAlgorithm: TypeAlias = Callable[[System], Algorithm]  # a user's own: a class, or a function


def train(
    model: nn.Module,
    clients: Any,
    test: Any = None,
    *,
    algorithm: str | MakeAlgorithm = AlgorithmSettings.name,
    rounds: int = SystemSettings.T,
    per_round: int | None = None,
    local_steps: int | None = None,
    local_epochs: int | None = None,
    sampling: Sampling | Sequence[float] = SystemSettings.sampling,
    batch_size: int = DataSettings.batch_size,
    seed: int = RunSettings.seed,
    eval_every: int = RunSettings.eval_every,
    loss: Loss | None = None,
    schedule: Schedule = Schedule(),
    grad_norm: bool = RunSettings.grad_norm,
    device: str = RunSettings.device,
    fleet: FleetName = RunSettings.fleet,
    workers: int = RunSettings.workers,
    kernels: Kernels = RunSettings.kernels,
    commit_every: int = RunSettings.commit_every,
    out: str | Path | None = None,
    progress: bool = True,
    **options: object,
) -> Run:
    """Train the model on the clients' data and return the run: `.model`, `.history`, `.theta`.

    `clients` is a sequence of (x, y) pairs or data sets, or one data set and a partition.
    `algorithm` is a name from `tunefree algorithms`, `package.module:Name`, a class, or a function
    of the system constants; further keywords are its options. A client makes `local_steps`
    mini-batch steps in a round (10), or instead `local_epochs` passes over its own samples.
    `sampling="examples"` draws clients by the samples they hold, a sequence by a weight for each.
    `schedule = Schedule("buffered", concurrency=20)` lets clients work asynchronously. The model
    given is left as it is. With `out` the whole run is kept in that file, also when it fails;
    `resume` goes on with it.

    >>> clients = [(torch.randn(20, 4), torch.randint(3, (20,))) for _ in range(5)]
    >>> run = train(nn.Linear(4, 3), clients, rounds=50, local_steps=2, progress=False)
    >>> len(run.history), run.model
    (51, Linear(in_features=4, out_features=3, bias=True))
    """
    federation = federation_from(clients, test)
    named = isinstance(algorithm, str)
    settings = at_door(
        {
            **{"algorithm": algorithm if named else "", "rounds": rounds, "per_round": per_round},
            **{"local_steps": local_steps, "local_epochs": local_epochs, "sampling": sampling},
            **{"batch_size": batch_size, "seed": seed},
            **{"eval_every": eval_every, "grad_norm": grad_norm, "device": device, "fleet": fleet},
            **{"workers": workers, "kernels": kernels, "commit_every": commit_every},
            **{"out": str(out) if out else "", "data": "", "partition": ""},
        },
        len(federation),
        options,
    )
    settings = replace(settings, schedule=schedule)
    make = None if isinstance(algorithm, str) else algorithm
    return finish(own_data(settings, model, federation, make, loss), progress)


def resume(
    path: str | Path,
    model: nn.Module | None = None,
    clients: Any = None,
    test: Any = None,
    *,
    algorithm: MakeAlgorithm | None = None,
    loss: Loss | None = None,
    rounds: int | None = None,
    fleet: FleetName = RunSettings.fleet,
    workers: int = RunSettings.workers,
    progress: bool = True,
) -> Run:
    """Go on with a run to the same bits as if it had never stopped.

    A run of the command line needs its file only. One of `train` needs again what a file cannot
    keep: the model as it was given, the clients' data, and a function if one was the algorithm or
    the loss. All other settings are the run's own, but for `rounds`: also a finished run goes on
    to so many, as if begun with them, if no step of its method depends on T.
    """
    path = Path(path)
    with closing(Record.open(path)) as record:
        facts = record.facts()
    if facts.door == "command":
        return finish(resume_command(path, fleet, workers, rounds), progress)
    if model is None or clients is None or facts.door != "train":
        raise ConfigError(
            f"'{path}' was made by tunefree.train, and model and data are not kept in it; give "
            "them again: tunefree.resume(path, model, clients)"
        )
    if not facts.algorithm and algorithm is None:
        raise ConfigError(
            f"the algorithm of '{path}' was a function, which is not kept in it; give it again: "
            "tunefree.resume(path, model, clients, algorithm=...)"
        )
    begun = with_fleet(config_from(facts.config), path, fleet, workers)
    settings = with_rounds(begun, rounds)
    federation = federation_from(clients, test)
    if len(federation) != settings.system.N:
        raise ConfigError(
            f"'{path}' was begun with {settings.system.N} clients, and now there are "
            f"{len(federation)}; give those it began with"
        )
    return finish(own_data(settings, model, federation, algorithm, loss, begun), progress)


def resume_command(
    path: Path,
    fleet: FleetName = RunSettings.fleet,
    workers: int = RunSettings.workers,
    rounds: int | None = None,
) -> Run:
    """A run of the command line as its file left it, ready to go on, perhaps to other rounds."""
    with closing(Record.open(path)) as record:
        facts = record.facts()
    if facts.door != "command":
        raise ConfigError(
            f"'{path}' was made by tunefree.train; go on with it in Python: "
            "tunefree.resume(path, model, clients)"
        )
    begun = with_fleet(config_from(facts.config), path, fleet, workers)
    return prepare(with_rounds(begun, rounds), begun=begun)


def client_scores(path: Path) -> list[Row]:
    """The scores on each client's training data of a run of the command line, as last committed."""
    with closing(Record.open(path)) as record:
        facts, vectors = record.facts(), record.vectors()
    if facts.door != "command":
        raise ConfigError(
            f"'{path}' does not keep its clients' data; in Python: "
            "tunefree.Run.resume(path, model, clients).client_scores()"
        )
    if "theta" not in vectors:
        raise ConfigError(f"'{path}' holds no model yet: no round was committed")
    _, objective, federation = configured(config_from(facts.config))
    theta = torch.from_numpy(vectors["theta"]).to(objective.theta0)
    return evaluate.client_scores(objective, theta, federation)


def with_fleet(settings: Config, path: Path, fleet: FleetName, workers: int) -> Config:
    return replace(settings, run=replace(settings.run, out=str(path), fleet=fleet, workers=workers))


def own_data(
    settings: Config,
    model: nn.Module,
    federation: Federation,
    make: MakeAlgorithm | None,
    loss: Loss | None,
    begun: Config | None = None,
) -> Run:
    """The run of a user's own model and data, checked; nothing is trained yet."""
    task = task_of(model, federation.train, loss)
    federation = check_federation(task.of(federation))
    objective = Objective(model, task.loss, usable(settings.run.device), settings.run.kernels)
    return simulation(settings, objective, federation, {"door": "train"}, make, begun)


def prepare(settings: Config, facts: Mapping[str, Any] = {}, begun: Config | None = None) -> Run:
    """Everything a configured run needs, found and checked; nothing is trained yet.

    `facts` are kept in the run file beside the settings; `begun` are the settings of a run that
    exists and goes on.
    """
    settings, objective, federation = configured(settings)
    out = settings.run.out or str(new_path(settings))
    settings = replace(settings, run=replace(settings.run, out=out))
    return simulation(settings, objective, federation, facts, begun=begun)


def configured(settings: Config) -> tuple[Config, Objective, Federation]:
    """The data and the model that the settings name; in those given back the model has a name."""
    chosen = settings.algorithm
    algorithms.check(chosen.name, algorithms.options_of(chosen), chosen.explicit_steps)
    dataset, federation = named_data(settings)
    model = replace(settings.model, name=settings.model.name or dataset.model)
    settings = replace(settings, model=model)
    return settings, named_objective(settings, dataset), federation


def named_data(settings: Config) -> tuple[Dataset, Federation]:
    """The data set that the settings name, and how it is dealt out."""
    data, seed = settings.data, settings.run.seed
    dataset = sources.load(data.name, data.dir or None, **data.options)
    parts = partition.from_spec(
        data.partition, dataset.train.y.numpy(), settings.system.N, seed, dataset.groups
    )
    test = dataset.test
    if data.validation:
        parts, test = held_out(dataset.train, parts, data.validation, seed)
    federation = Federation(dataset.train, parts, test, dataset.classes, data.name)
    return dataset, check_federation(federation)


def named_objective(settings: Config, dataset: Dataset) -> Objective:
    """The objective of the model that the settings or the data set name."""
    model, run, shape = settings.model, settings.run, dataset.train.input_shape
    name = model.name or dataset.model
    module = tunefree.models.build(name, shape, dataset.classes, model.options, run.seed)
    return Objective(module, default_loss(dataset.classes), usable(run.device), run.kernels)


def simulation(
    settings: Config,
    objective: Objective,
    federation: Federation,
    facts: Mapping[str, Any],
    make: MakeAlgorithm | None = None,
    begun: Config | None = None,
) -> Run:
    """The run of these settings in this process and its workers, whoever brought the data."""
    sizes = federation.parts.sizes
    settings = with_sizes(settings, sizes)
    run, batch_size, schedule = settings.run, settings.data.batch_size, settings.schedule
    odds = probabilities(settings.system.sampling, sizes.tolist())
    algo = algorithms.configure(settings, objective.shapes, make)
    algorithms.note_no_momentum(algo)
    check(schedule, algo)
    objective.check(federation.train)

    def identity(algo: Algorithm) -> dict[str, str]:
        return identify(
            algo, objective, federation, batch_size, run.seed, schedule, settings.system
        )

    shared = None
    if begun is not None:
        before = algorithms.configure(with_sizes(begun, sizes), objective.shapes, make)
        algorithms.check_rounds(before, algo)
        shared = identity(before)
    clients = DataClients(
        *(objective, federation.train, federation.parts, batch_size, run.seed),
        epochs=settings.system.epochs,
    )
    chosen = choice.choose(run.fleet, clients, algo.sys)
    said = replace(
        describe(algo, objective, federation),
        config=settings.told_apart(),
        identity=identity(algo),
        fleet=chosen,
        **facts,
    )
    out = Path(run.out) if run.out else None
    record = open_record(out, said, algo.sys.T, shared)
    states = States(algo.client(objective.theta0), record.vectors if out else None)
    workers = choice.start(chosen, algo, clients, run.workers, states)
    return Run(
        partial(simulate, algo, workers, objective.theta0, run.seed, schedule, odds=odds),
        workers,
        Everybody(algo, run.seed, odds),
        objective,
        record,
        Evaluator(objective, federation, run.seed, run.grad_norm),
        eval_every=run.eval_every,
        commit_every=run.commit_every,
    )


def finish(run: Run, progress: bool) -> Run:
    for _ in show_progress(run) if progress else run:
        pass
    return run


def usable(device: str) -> torch.device:
    """The device, once a tensor could be put there."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            f"run.device = {device!r} cannot be used here ({str(error).splitlines()[0]}); "
            "use cpu, or cuda where there is a GPU"
        ) from error
    return torch.device(device)


def new_path(settings: Config) -> Path:
    """The first free name in runs/."""
    method, data = (
        re.sub(r"[^\w.=+-]+", "_", Path(name).name)  # an own one may lie anywhere
        for name in (settings.algorithm.name, settings.data.name)
    )
    stem = f"{method}-{data}-seed{settings.run.seed}"
    number = 1
    while (path := Path("runs") / f"{stem}-{number:03}.sqlite").exists():
        number += 1
    return path
