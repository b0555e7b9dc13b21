"""The Python API: from settings, or from a model and clients, to a run."""

from __future__ import annotations

import inspect
import math
import re
import secrets
import signal
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias

import torch
from numpy.typing import NDArray
from torch import nn

import tunefree.models
from tunefree.config import (
    AlgorithmSettings,
    Config,
    DataSettings,
    FleetName,
    Kernels,
    ModelSettings,
    RunSettings,
    Sampling,
    Schedule,
    SystemSettings,
    config_from,
    from_arguments,
    probabilities,
    with_rounds,
    with_sizes,
)
from tunefree.core import Algorithm, System
from tunefree.data import partition, sources
from tunefree.data.clients import federation_from
from tunefree.data.samples import Dataset, Federation, check_federation, held_out
from tunefree.errors import ConfigError, refuses_unknown
from tunefree.fleet import choice
from tunefree.fleet.states import States
from tunefree.fleet.work import DataClients
from tunefree.methods import registry
from tunefree.models import weights
from tunefree.models.lora import with_adapters
from tunefree.models.objective import Objective
from tunefree.models.targets import Loss, default_loss, task_of
from tunefree.record import Facts, Record, Row
from tunefree.record.provenance import describe, fingerprint, identify
from tunefree.record.summary import own_measures
from tunefree.run import arguments, evaluate
from tunefree.run.engine import Training, open_record
from tunefree.run.evaluate import Evaluator, Measure
from tunefree.run.progress import Stop, show_progress
from tunefree.run.text import introduction, one_line, progress_of, state_of
from tunefree.schedule.membership import Everybody
from tunefree.schedule.simulate import check, simulate

MakeAlgorithm: TypeAlias = Callable[[System], Algorithm]  # a user's own: a class, or a function
P = ParamSpec("P")


class Run(Training):
    """A training run: iterate it for a row per round, stop, inspect it, continue.

    Args:
        model: Any module; it is copied and left as it is.
        clients: A sequence of (x, y) pairs or data sets, or one data set and a partition.
        test: Held-out samples for the scores, in the same form as one client's.
        algorithm: A name from `tunefree algorithms`, `package.module:Name`, a class, or a function
            of the system constants.
        rounds: T, the number of server steps.
        per_round: S, clients per round; by default 10, or all if there are fewer. 0 is all.
        local_steps: K, mini-batch steps of a client per round; by default 10.
        local_epochs: Instead of steps, passes of a client over its own samples.
        sampling: "uniform"; "examples" samples clients with more data more often; or a sequence
            with a weight for each client.
        batch_size: Samples per mini-batch.
        seed: The same seed gives the same bits; None draws one, which the run stores.
        eval_every: Rounds between evaluations.
        evaluate: A function of the model that returns further scores as a dict of numbers.
        loss: By default the model's own, else cross-entropy for labels, MSE for real targets.
        schedule: `Schedule("buffered", concurrency=20)` lets clients work asynchronously.
        grad_norm: Whether evaluations also measure the norm of the full gradient.
        device: "cpu", or "cuda" where there is a GPU.
        fleet: Where clients run: "serial", "pool" (all cores), "ray", or "auto": the faster one.
        workers: Processes of the pool; 0 is one per core.
        kernels: How gradients are computed; "plain" uses torch only.
        commit_every: Rounds between commits to the file; 0 commits whenever it costs little.
        name: The name of the run in reports.
        out: The file that stores the whole run, also if it fails; `resume` continues it.
        progress: Whether `finish` and `train` show progress.
        options: The algorithm's own options, such as `compressor="sign"`.

    >>> clients = [(torch.randn(20, 4), torch.randint(3, (20,))) for _ in range(5)]
    >>> run = Run(nn.Linear(4, 3), clients, rounds=50, local_steps=2)
    >>> for row in run:
    ...     if row["round"] == 20:
    ...         break
    >>> run
    <Run PolarFL; N = 5, S = 5, K = 2, T = 50; interrupted after round 20; train loss ...>
    """

    def __init__(
        self,
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
        seed: int | None = RunSettings.seed,
        eval_every: int = RunSettings.eval_every,
        evaluate: Measure | None = None,
        loss: Loss | None = None,
        schedule: Schedule | str = Schedule(),
        grad_norm: bool = RunSettings.grad_norm,
        device: str | torch.device = RunSettings.device,
        fleet: FleetName = RunSettings.fleet,
        workers: int = RunSettings.workers,
        kernels: Kernels = RunSettings.kernels,
        commit_every: int = RunSettings.commit_every,
        name: str = "",
        out: str | Path | None = None,
        progress: bool = True,
        **options: object,
    ) -> None:
        given = {
            **{"algorithm": algorithm if isinstance(algorithm, str) else "", "rounds": rounds},
            **{"per_round": per_round, "local_steps": local_steps, "local_epochs": local_epochs},
            **{"sampling": sampling, "batch_size": batch_size},
            **{"seed": secrets.randbits(31) if seed is None else seed, "eval_every": eval_every},
            **{"grad_norm": grad_norm, "device": device, "fleet": fleet, "workers": workers},
            **{"kernels": kernels, "commit_every": commit_every, "out": out or ""},
            **{"data": "", "partition": ""},
        }
        with arguments.named():
            arguments.check_options(options, algorithm, inspect.signature(Run).parameters)
            federation = federation_from(clients, test)
            given, options = (
                {key: arguments.plain(value) for key, value in each.items()}
                for each in (given, options)
            )
            settings = from_arguments(given, len(federation), options)
            settings = replace(settings, schedule=arguments.schedule_of(schedule))
            make = None if isinstance(algorithm, str) else algorithm
            self._own(settings, model, federation, make, loss, None, evaluate, {"label": str(name)})
        self._progress = progress

    def _own(
        self,
        settings: Config,
        model: nn.Module,
        federation: Federation,
        make: MakeAlgorithm | None,
        loss: Loss | None,
        earlier: Config | None,
        evaluate: Measure | None,
        facts: Mapping[str, Any],
    ) -> None:
        """Set up the run with the user's own model and data, after checking them."""
        if settings.model.start or settings.model.lora:
            key = "start" if settings.model.start else "lora"
            raise ConfigError(
                f"model.{key} is for models by name; give your own with its weights and adapters "
                "in it, and omit this"
            )
        task = task_of(model, federation.train, loss)
        federation = check_federation(task.of(federation))
        objective = Objective(model, task.loss, usable(settings.run.device), settings.run.kernels)
        facts = {"door": "train", **facts}
        self._set_up(settings, objective, federation, facts, make, earlier, evaluate)

    def _set_up(
        self,
        settings: Config,
        objective: Objective,
        federation: Federation,
        facts: Mapping[str, Any],
        make: MakeAlgorithm | None,
        earlier: Config | None,
        evaluate: Measure | None,
    ) -> None:
        """Everything checked and ready, in this process and its workers; nothing trained yet."""
        sizes = federation.parts.sizes
        settings = with_sizes(settings, sizes)
        run, batch_size, schedule = settings.run, settings.data.batch_size, settings.schedule
        odds = probabilities(settings.system.sampling, sizes.tolist())
        algo = registry.configure(settings, objective.shapes, make)
        registry.note_no_momentum(algo)
        check(schedule, algo)
        objective.check(federation.train)

        def identity(algo: Algorithm) -> dict[str, str]:
            return identify(
                algo, objective, federation, batch_size, run.seed, schedule, settings.system
            )

        shared = None
        if earlier is not None:
            before = registry.configure(with_sizes(earlier, sizes), objective.shapes, make)
            registry.check_rounds(before, algo)
            shared = identity(before)
        clients = DataClients(
            *(objective, federation.train, federation.parts, batch_size, run.seed),
            epochs=settings.system.epochs,
        )
        chosen = choice.choose(run.fleet, clients, algo.sys)
        self._evaluator = Evaluator(objective, federation, run.seed, run.grad_norm, evaluate)
        if earlier is not None and evaluate is None:
            note_lost_measures(Path(run.out))
        said = replace(
            describe(algo, objective, federation),
            config=settings.canonical(),
            identity=identity(algo),
            fleet=chosen,
            **facts,
        )
        theta0, first = objective.theta0, algo.client(objective.theta0)
        self._progress = True
        super().__init__(
            lambda fleet, after: simulate(
                algo, fleet, theta0, run.seed, schedule, after, odds=odds
            ),
            lambda stored: choice.start(chosen, algo, clients, run.workers, States(first, stored)),
            Everybody(algo, run.seed, odds),
            objective,
            open_record(Path(run.out) if run.out else None, said, algo.sys.T, shared),
            self._evaluator,
            eval_every=run.eval_every,
            commit_every=run.commit_every,
        )

    @classmethod
    @refuses_unknown
    def resume(
        cls,
        path: str | Path,
        model: nn.Module | None = None,
        clients: Any = None,
        test: Any = None,
        *,
        algorithm: MakeAlgorithm | None = None,
        loss: Loss | None = None,
        evaluate: Measure | None = None,
        rounds: int | None = None,
        fleet: FleetName = RunSettings.fleet,
        workers: int = RunSettings.workers,
        progress: bool = True,
    ) -> Run:
        """The run in a file, ready to continue bit for bit as if it had never stopped.

        A run of the command line needs only its file. One of `train` also needs what a file cannot
        store: model, data and functions. All other settings are the run's own, except `rounds`.

        Args:
            path: The run file.
            model: The module as it was given at the start.
            clients: The clients' data, the same as before.
            test: The test set, the same as before.
            algorithm: The class or function, if the algorithm was one.
            loss: The function, if a loss was given.
            evaluate: The function, if there are measures of your own.
            rounds: A new T, also for a finished run: as if started with it, if no step of its
                method depends on T.
            fleet: Where clients run now; may differ from before.
            workers: Processes of the pool; 0 is one per core.
            progress: Whether `finish` shows progress.

        >>> from tempfile import TemporaryDirectory
        >>> clients = [(torch.randn(20, 4), torch.randint(3, (20,))) for _ in range(5)]
        >>> model, sizes = nn.Linear(4, 3), {"local_steps": 2, "progress": False}
        >>> with TemporaryDirectory() as folder:
        ...     first = Run(model, clients, rounds=4, out=f"{folder}/a.sqlite", **sizes).finish()
        ...     again = Run.resume(f"{folder}/a.sqlite", model, clients, rounds=6, progress=False)
        ...     again.finish().history[-1]["round"]
        6
        """
        path = Path(path)
        with arguments.named():
            facts = facts_of(path)
            if facts.door == "command":
                run = resume_command(path, fleet, workers, rounds, evaluate)
                run._progress = progress
                return run
            if model is None or clients is None or facts.door != "train":
                raise ConfigError(
                    f"'{path}' was made by tunefree.train and does not contain model and data; "
                    "give them again: tunefree.resume(path, model, clients)"
                )
            if not facts.algorithm and algorithm is None:
                raise ConfigError(
                    f"the algorithm of '{path}' was a function, which is not stored in it; give it "
                    "again: tunefree.resume(path, model, clients, algorithm=...)"
                )
            earlier = with_fleet(config_from(facts.config), path, fleet, workers)
            settings = with_rounds(earlier, rounds)
            federation = federation_from(clients, test)
            if len(federation) != settings.system.N:
                raise ConfigError(
                    f"'{path}' was started with {settings.system.N} clients, and now there are "
                    f"{len(federation)}; give the ones it was started with"
                )
            run = own_data(settings, model, federation, algorithm, loss, earlier, evaluate)
            run._progress = progress
            return run

    def finish(self) -> Run:
        """Train to the end, as `train` does, and return the run.

        Ctrl-C stops it after the current round and prints how to resume; twice stops it at once.
        """
        handler = signal.getsignal(signal.SIGINT)
        stop = Stop(*([signal.SIGINT] if handler is signal.default_int_handler else ()))
        with stop:
            for _ in show_progress(self) if self._progress else self:
                if stop.asked:
                    break
        if stop.asked and self.record.state != "done":
            path = self.record.path
            file = f", or {self.record.facts().how_to_resume(path)}" if path else ""
            sys.stderr.write(f"{state_of(self)}; continue with run.finish(){file}\n")
        return self

    def summary(self) -> str:
        """The run as text: every step size and its formula, and its progress."""
        return f"{introduction(self)}\n  {progress_of(self)}"

    def client_scores(self) -> list[Row]:
        """The model's scores on each client's own training data; see `tunefree.spread`."""
        return self._evaluator.clients(self.theta)

    def __repr__(self) -> str:
        return one_line(self)


def to_the_end(make: Callable[P, Run], name: str, doc: str, example: str) -> Callable[P, Run]:
    """The function of the same arguments that also trains to the end."""
    arguments = (inspect.getdoc(make) or "").partition("\n\n")[2].partition("\n\n>>>")[0]

    def run_to_the_end(*given: P.args, **settings: P.kwargs) -> Run:
        return make(*given, **settings).finish()

    run_to_the_end.__name__ = run_to_the_end.__qualname__ = name
    run_to_the_end.__doc__ = f"{doc}\n\n{arguments}\n\n{example}"
    run_to_the_end.__signature__ = inspect.signature(make)  # type: ignore[attr-defined]
    return run_to_the_end


train = to_the_end(
    Run,
    "train",
    "Train the model on the clients' data to the end and return the run.",
    """\
>>> clients = [(torch.randn(20, 4), torch.randint(3, (20,))) for _ in range(5)]
>>> run = train(nn.Linear(4, 3), clients, test=clients[0], rounds=5, progress=False)
>>> run.history[-1]["round"], run.model
(5, Linear(in_features=4, out_features=3, bias=True))
""",
)
resume = to_the_end(
    Run.resume,
    "resume",
    "Resume the run in a file, train it to the end and return it.",
    """\
>>> from tempfile import TemporaryDirectory
>>> clients = [(torch.randn(20, 4), torch.randint(3, (20,))) for _ in range(5)]
>>> model = nn.Linear(4, 3)
>>> with TemporaryDirectory() as folder:
...     run = train(model, clients, rounds=3, out=f"{folder}/a.sqlite", progress=False)
...     run = resume(f"{folder}/a.sqlite", model, clients, rounds=6, progress=False)
>>> run.record.state
'done'
""",
)


@refuses_unknown
def load(path: str | Path, model: nn.Module | None = None) -> nn.Module:
    """A copy of the model with the parameters of a run file, as last committed, ready to use.

    Args:
        path: The run file.
        model: The module that the run was given, as the file contains only what was trained. Not
            needed for a run of the command line.

    >>> from tempfile import TemporaryDirectory
    >>> clients = [(torch.randn(20, 4), torch.randint(3, (20,))) for _ in range(5)]
    >>> with TemporaryDirectory() as folder:
    ...     file = f"{folder}/a.sqlite"
    ...     run = train(nn.Linear(4, 3), clients, rounds=2, out=file, progress=False)
    ...     load(file, nn.Linear(4, 3))
    Linear(in_features=4, out_features=3, bias=True)
    """
    path = Path(path)
    with closing(Record.open(path)) as record:
        facts, vectors = record.facts(), record.vectors()
    if "theta" not in vectors:
        raise ConfigError(f"'{path}' contains no model yet: no round was committed")
    if model is None:
        if facts.door != "command":
            raise ConfigError(
                f"'{path}' does not contain the module; give the one it has trained: "
                "tunefree.load(path, model)"
            )
        model = configured(config_from(facts.config))[1].module
    objective = Objective(model, device=next(model.parameters()).device, kernels="plain")
    theta = torch.from_numpy(vectors["theta"])
    here = [list(shape) for shape in objective.shapes]
    trained = {place: list(shape) for _, shape, place in facts.tensors if place >= 0}
    there = [trained[place] for place in sorted(trained)]
    if len(theta) != objective.d or (there and here != there):
        raise ConfigError(
            f"the model does not fit '{path}': it has {objective.d} trainable parameters in "
            f"tensors of shapes {here}, and the run {len(theta)} in {there or 'some'}; give the "
            "model that was trained"
        )
    return objective.module_at(theta.to(objective.theta0))


def state_dict(record: Record) -> dict[str, NDArray[Any]]:
    """Name -> tensor of the model trained so far, including untrained tensors of a named model."""
    facts, theta = record.facts(), record.vectors().get("theta")
    if theta is None:
        raise ConfigError(f"'{record.path}' contains no model yet: no step was committed")
    with_model = f"use tunefree.load({str(record.path)!r}, model) in Python"
    if not facts.tensors:
        raise ConfigError(
            f"'{record.path}' was made by an earlier tunefree, which did not store the names of "
            f"the model's tensors; {with_model}"
        )
    fixed = [name for name, _, place in facts.tensors if place < 0]
    if fixed and facts.door != "command":
        raise ConfigError(
            f"{fixed[0]!r} of the model was not trained, and '{record.path}' has only what was; "
            f"{with_model}"
        )
    others = untrained(facts, record) if fixed else {}
    return {
        name: others[name]
        if place < 0
        else theta[place : place + math.prod(shape)].reshape(shape).copy()
        for name, shape, place in facts.tensors
    }


def untrained(facts: Facts, record: Record) -> dict[str, NDArray[Any]]:
    """Frozen parameters and buffers of a named model, which is built again."""
    settings = config_from(facts.config)
    data = settings.data
    objective = named_objective(settings, sources.load(data.name, data.dir or None, **data.options))
    if fingerprint(objective.theta0.cpu().numpy()) != facts.identity.get("first model"):
        raise ConfigError(
            f"model.name = {facts.model!r} now builds another model than when '{record.path}' was "
            "started; restore the model that it was started with"
        )
    return {name: each.cpu().numpy() for name, each in objective.module.state_dict().items()}


def client_scores(path: Path) -> list[Row]:
    """Scores on each client's training data, for a run of the command line as last committed."""
    with closing(Record.open(path)) as record:
        facts, vectors = record.facts(), record.vectors()
    if facts.door != "command":
        raise ConfigError(
            f"'{path}' does not contain its clients' data; in Python: "
            "tunefree.Run.resume(path, model, clients).client_scores()"
        )
    if "theta" not in vectors:
        raise ConfigError(f"'{path}' contains no model yet: no round was committed")
    _, objective, federation = configured(config_from(facts.config))
    theta = torch.from_numpy(vectors["theta"]).to(objective.theta0)
    return evaluate.client_scores(objective, theta, federation)


def facts_of(path: Path) -> Facts:
    with closing(Record.open(path)) as record:
        return record.facts()


def resume_command(
    path: Path,
    fleet: FleetName = RunSettings.fleet,
    workers: int = RunSettings.workers,
    rounds: int | None = None,
    evaluate: Measure | None = None,
) -> Run:
    """A run of the command line as stored in its file, ready to continue, perhaps to another T."""
    facts = facts_of(path)
    if facts.door != "command":
        raise ConfigError(
            f"'{path}' was made by tunefree.train; resume it in Python: "
            "tunefree.resume(path, model, clients)"
        )
    earlier = with_fleet(config_from(facts.config), path, fleet, workers)
    return prepare(with_rounds(earlier, rounds), earlier=earlier, evaluate=evaluate)


def note_lost_measures(path: Path) -> None:
    """Warn that measures of a user's function, which no file contains, end here."""
    with closing(Record.open(path)) as record:
        own = own_measures(record.history())
    if own:
        warnings.warn(
            f"'{path}' has the measures {', '.join(own)} of a function that is not stored in it; "
            "they end here, unless you give it again: evaluate=...",
            stacklevel=2,
        )


def with_fleet(settings: Config, path: Path, fleet: FleetName, workers: int) -> Config:
    return replace(settings, run=replace(settings.run, out=str(path), fleet=fleet, workers=workers))


def own_data(
    settings: Config,
    model: nn.Module,
    federation: Federation,
    make: MakeAlgorithm | None,
    loss: Loss | None,
    earlier: Config | None = None,
    evaluate: Measure | None = None,
    facts: Mapping[str, Any] = {},
) -> Run:
    """The run of a user's own model and data, checked; nothing is trained yet."""
    run = Run.__new__(Run)
    run._own(settings, model, federation, make, loss, earlier, evaluate, facts)
    return run


def prepare(
    settings: Config,
    facts: Mapping[str, Any] = {},
    earlier: Config | None = None,
    evaluate: Measure | None = None,
) -> Run:
    """Everything a configured run needs, loaded and checked; nothing is trained yet.

    `facts` are stored in the run file beside the settings; `earlier` are the settings of a run
    to resume.
    """
    settings, objective, federation = configured(settings)
    out = settings.run.out or str(new_path(settings))
    settings = replace(settings, run=replace(settings.run, out=out))
    return simulation(settings, objective, federation, facts, earlier=earlier, evaluate=evaluate)


def configured(settings: Config) -> tuple[Config, Objective, Federation]:
    """The data and the model that the settings name; in those returned the model has a name."""
    chosen = settings.algorithm
    registry.check(chosen.name, registry.options_of(chosen), chosen.explicit_steps)
    dataset, federation = named_data(settings)
    model = replace(settings.model, name=settings.model.name or dataset.model)
    settings = with_start(replace(settings, model=model))
    return settings, named_objective(settings, dataset), federation


def named_data(settings: Config) -> tuple[Dataset, Federation]:
    """The data set that the settings name, and its split across clients."""
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
    if model.start:
        weights.put(module, start_of(model), model.start)
    if model.lora:
        module = tunefree.models.seeded(
            lambda: with_adapters(module, model.lora), run.seed, "adapters"
        )
    return Objective(module, default_loss(dataset.classes), usable(run.device), run.kernels)


def with_start(settings: Config) -> Config:
    """The settings with the fingerprint of the weights that they start from.

    So no run is resumed, or counts as finished, with other weights.
    """
    model = settings.model
    if not model.start or model.fingerprint:
        return settings
    mark = weights.fingerprint(start_of(model))
    return replace(settings, model=replace(model, fingerprint=mark))


def start_of(model: ModelSettings) -> weights.State:
    """The weights to start from: the model of a run file as last committed, or a state dict."""
    path, wanted = Path(model.start), model.fingerprint
    if not path.is_file():
        raise ConfigError(
            f"model.start = '{path}' does not exist; give a run file, or a state dict that ends "
            f"in {' or '.join(weights.FILES)}"
        )
    if path.suffix in weights.FILES:
        state = weights.read(path)
    else:
        with closing(Record.open(path)) as record:
            state = {name: torch.from_numpy(each) for name, each in state_dict(record).items()}
    if wanted and (found := weights.fingerprint(state)) != wanted:
        raise ConfigError(
            f"model.start = '{path}' has changed: its weights had the fingerprint {wanted}, and "
            f"now it is {found}; give them as they were, or start a new run"
        )
    return state


def simulation(
    settings: Config,
    objective: Objective,
    federation: Federation,
    facts: Mapping[str, Any],
    make: MakeAlgorithm | None = None,
    earlier: Config | None = None,
    evaluate: Measure | None = None,
) -> Run:
    """The run of these settings in this process and its workers, on named or given data."""
    run = Run.__new__(Run)
    run._set_up(settings, objective, federation, facts, make, earlier, evaluate)
    return run


def usable(device: str) -> torch.device:
    """The device, after checking that it can store a tensor."""
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
        re.sub(r"[^\w.=+-]+", "_", Path(name).name)  # a user's own may be anywhere
        for name in (settings.algorithm.name, settings.data.name)
    )
    stem = f"{method}-{data}-seed{settings.run.seed}"
    number = 1
    while (path := Path("runs") / f"{stem}-{number:03}.sqlite").exists():
        number += 1
    return path
