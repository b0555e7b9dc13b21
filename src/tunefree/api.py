"""The front doors: from settings, or from a model and clients, to a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import tunefree.models
from tunefree import algorithms
from tunefree.config import Config, SystemSettings, checked, checked_system, config_from
from tunefree.core import Algorithm, System
from tunefree.data import partition
from tunefree.data.clients import federation_from
from tunefree.data.named import sources
from tunefree.data.samples import Federation, Samples, check_federation
from tunefree.data.validation import held_out
from tunefree.errors import ConfigError
from tunefree.models.objective import Kernels, Loss, Objective
from tunefree.progress import show_progress as shown
from tunefree.record import Record
from tunefree.run import FleetName, Run
from tunefree.schedule.choice import SYNCHRONOUS, Schedule


def train(
    model: nn.Module,
    clients: Any,
    test: Any = None,
    *,
    algorithm: str | Callable[[System], Algorithm] = "padamfed",
    rounds: int = 200,
    per_round: int | None = None,
    local_steps: int = 10,
    batch_size: int = 32,
    seed: int = 0,
    eval_every: int = 10,
    loss: Loss | None = None,
    schedule: Schedule = SYNCHRONOUS,
    grad_norm: bool = False,
    device: str = "cpu",
    fleet: FleetName = "auto",
    workers: int = 0,
    kernels: Kernels = "auto",
    commit_every: int = 1,
    out: str | Path | None = None,
    progress: bool = True,
    **options: object,
) -> Run:
    """Train the model on the clients' data and return the run: `.model`, `.history`, `.theta`.

    `clients` is a sequence of (x, y) pairs or data sets, or one data set and a partition.
    `algorithm` is a name from `tunefree algorithms` or a function of the system constants;
    further keywords are its options. `schedule = Schedule("buffered", concurrency=20)` lets
    clients work asynchronously. The model given is left as it is. With `out` the whole run is kept
    in that file, also when it fails; `resume` goes on with it.

    >>> clients = [(torch.randn(20, 4), torch.randint(3, (20,))) for _ in range(5)]
    >>> run = train(nn.Linear(4, 3), clients, rounds=50, local_steps=2, progress=False)
    >>> len(run.history), run.model
    (51, Linear(in_features=4, out_features=3, bias=True))
    """
    settings = Training(
        rounds=rounds,
        per_round=per_round,
        local_steps=local_steps,
        batch_size=batch_size,
        seed=seed,
        eval_every=eval_every,
        commit_every=commit_every,
        schedule=schedule,
        grad_norm=grad_norm,
        device=device,
        kernels=kernels,
        options=options,
    )
    path = None if out is None else Path(out)
    run = begun(model, clients, test, algorithm, loss, settings, fleet, workers, path)
    return finished(run, progress)


def resume(
    path: str | Path,
    model: nn.Module | None = None,
    clients: Any = None,
    test: Any = None,
    *,
    algorithm: Callable[[System], Algorithm] | None = None,
    loss: Loss | None = None,
    fleet: FleetName = "auto",
    workers: int = 0,
    progress: bool = True,
) -> Run:
    """Go on with an unfinished run to the same bits as if it had never stopped.

    A run of the command line needs its file only. One of `train` needs again what a file cannot
    keep: the model as it was given, the clients' data, and a function if one was the algorithm or
    the loss. All other settings are the run's own.
    """
    path = Path(path)
    with closing(Record.open(path)) as record:
        facts = record.facts()
    if "config" in facts:
        return finished(resumed(path, fleet, workers), progress)
    if model is None or clients is None or "train" not in facts:
        raise ConfigError(
            f"'{path}' was made by tunefree.train, and model and data are not kept in it; give "
            "them again: tunefree.resume(path, model, clients)"
        )
    kept = dict(facts["train"])
    name = kept.pop("algorithm")
    if name is None and algorithm is None:
        raise ConfigError(
            f"the algorithm of '{path}' was a function, which is not kept in it; give it again: "
            "tunefree.resume(path, model, clients, algorithm=...)"
        )
    settings = Training(**{**kept, "schedule": Schedule(**kept["schedule"])})
    run = begun(
        model, clients, test, algorithm or name, loss, settings, fleet, workers, path, go_on=True
    )
    return finished(run, progress)


@dataclass(frozen=True)
class Training:
    """The arguments of `train` that a run file can keep."""

    rounds: int
    per_round: int | None
    local_steps: int
    batch_size: int
    seed: int
    eval_every: int
    commit_every: int
    schedule: Schedule
    grad_norm: bool
    device: str
    kernels: Kernels
    options: Mapping[str, object]


def begun(
    model: nn.Module,
    clients: Any,
    test: Any,
    algorithm: str | Callable[[System], Algorithm],
    loss: Loss | None,
    settings: Training,
    fleet: FleetName,
    workers: int,
    out: Path | None,
    go_on: bool = False,
) -> Run:
    """The run of a model on clients, checked; nothing is trained yet."""
    data, options = federation_from(clients, test), settings.options
    classes = outputs(model, data.train) if is_label(data.train.y) else None
    federation = check_federation(replace(data, classes=classes))
    N, S = len(federation), settings.per_round
    sys = checked_system(
        SystemSettings(N, min(10, N) if S is None else S, settings.local_steps, settings.rounds)
    )
    objective = Objective(
        model, loss or default_loss(classes), usable(settings.device), settings.kernels
    )
    if isinstance(algorithm, str):
        algo = algorithms.build(algorithm, sys, options, sizes=objective.sizes)
    elif options:
        raise ConfigError(f"{sorted(options)} cannot be given with a function as algorithm")
    else:
        algo = algorithms.over_tensors(algorithm(sys), objective.sizes)
    checked("data.batch_size", settings.batch_size, int, least=1)
    checked("run.eval_every", settings.eval_every, int, least=1)
    checked("run.commit_every", settings.commit_every, int, least=1)
    name = algorithm if isinstance(algorithm, str) else None
    return Run(
        algo,
        objective,
        federation,
        batch_size=settings.batch_size,
        seed=settings.seed,
        eval_every=settings.eval_every,
        commit_every=settings.commit_every,
        schedule=settings.schedule,
        grad_norm=settings.grad_norm,
        fleet=fleet,
        workers=workers,
        out=out,
        go_on=go_on,
        facts={"train": {**asdict(settings), "algorithm": name}},
    )


def finished(run: Run, progress: bool) -> Run:
    for _ in shown(run) if progress else run:
        pass
    return run


def resumed(path: Path, fleet: FleetName = "auto", workers: int = 0) -> Run:
    """A configured run as its file left it, ready to go on."""
    with closing(Record.open(path)) as record:
        facts = record.facts()
    if "config" not in facts:
        raise ConfigError(
            f"'{path}' was made by tunefree.train; go on with it in Python: "
            "tunefree.resume(path, model, clients)"
        )
    config = config_from(facts["config"])
    settings = replace(config.run, out=str(path), fleet=fleet, workers=workers)
    return prepare(replace(config, run=settings), go_on=True)


def prepare(config: Config, facts: Mapping[str, object] = {}, go_on: bool = False) -> Run:
    """Everything a configured run needs, found and checked; nothing is trained yet.

    `facts` are kept in the run file beside the settings; `go_on` continues the one that exists.
    """
    data, settings, chosen = config.data, config.run, config.algorithm
    options = {**chosen.options, **({"compressor": chosen.compressor} if chosen.compressor else {})}
    algorithms.check(chosen.name, options, chosen.explicit_steps)
    dataset = sources.load(data.name, data.dir or None, **data.options)
    parts = partition.from_spec(
        data.partition, dataset.train.y.numpy(), config.system.N, settings.seed, dataset.groups
    )
    test = dataset.test
    if data.validation:
        parts, test = held_out(dataset.train, parts, data.validation, settings.seed)
    federation = check_federation(
        Federation(dataset.train, parts, test, dataset.classes, data.name)
    )
    model = config.model.name or dataset.model
    module = tunefree.models.build(
        model,
        dataset.train.input_shape,
        dataset.classes,
        config.model.options,
        settings.seed,
    )
    loss, device = default_loss(dataset.classes), usable(settings.device)
    objective = Objective(module, loss, device, settings.kernels)
    return Run(
        algorithms.build(
            chosen.name, config.constants, options, chosen.explicit_steps, objective.sizes
        ),
        objective,
        federation,
        batch_size=data.batch_size,
        seed=settings.seed,
        eval_every=settings.eval_every,
        commit_every=settings.commit_every,
        schedule=Schedule(**asdict(config.schedule)),
        grad_norm=settings.grad_norm,
        fleet=settings.fleet,
        workers=settings.workers,
        out=Path(settings.out) if settings.out else new_path(config),
        go_on=go_on,
        facts={
            **facts,
            "config": replace(config, model=replace(config.model, name=model)).asdict(),
        },
    )


def is_label(y: torch.Tensor) -> bool:
    """One whole number per sample."""
    return y.dim() == 1 and not y.is_floating_point()


def outputs(model: nn.Module, samples: Samples) -> int | None:
    """How many classes the model tells apart, if it gives one number for each."""
    x, _ = samples.batch(slice(0, 1))
    was_training = model.training
    try:
        with torch.no_grad():
            answer = model.eval()(x)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        raise ConfigError(
            f"the model cannot take an input of shape {tuple(x.shape)} {x.dtype}: "
            f"{str(error).splitlines()[0]}"
        ) from error
    finally:
        model.train(was_training)
    return int(answer.shape[1]) if answer.dim() == 2 else None


def default_loss(classes: int | None) -> Loss:
    return nn.functional.mse_loss if classes is None else nn.functional.cross_entropy


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


def new_path(config: Config) -> Path:
    """The first free name in runs/."""
    stem = f"{config.algorithm.name}-{config.data.name}-seed{config.run.seed}"
    number = 1
    while (path := Path("runs") / f"{stem}-{number:03}.sqlite").exists():
        number += 1
    return path
