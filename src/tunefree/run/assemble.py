"""The Python API: from settings, or from a model and clients, to a run."""

from __future__ import annotations

import inspect
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
from torch import nn

from tunefree.core import Algorithm, System
from tunefree.data.clients import federation_from
from tunefree.data.samples import Federation, check_federation
from tunefree.derive import named_data, named_objective, usable, with_start
from tunefree.errors import ConfigError, refuses_unknown
from tunefree.fleet import choice
from tunefree.fleet.states import States
from tunefree.fleet.work import DataClients
from tunefree.methods import registry
from tunefree.models.answers import inputs_of
from tunefree.models.objective import Objective
from tunefree.models.scaling import Standardised, note_scale, standardised
from tunefree.models.targets import Loss, task_of
from tunefree.record import Facts, Record, Row
from tunefree.record.provenance import check_frozen, describe, identify
from tunefree.record.summary import own_measures
from tunefree.run import arguments, evaluate
from tunefree.run.engine import Training, open_record
from tunefree.run.evaluate import Evaluator, Measure
from tunefree.run.progress import Stop, show_progress
from tunefree.run.text import introduction, one_line, progress_of, state_of
from tunefree.schedule.membership import Everybody, probabilities
from tunefree.schedule.simulate import check, simulate
from tunefree.settings import FleetName, Kernels, Sampling, Schedule, Settings, restored
from tunefree.settings import load as load_settings

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
        standardise: Whether inputs and real targets are scaled to mean 0 and deviation 1.
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
        algorithm: str | MakeAlgorithm = Settings.algorithm,
        rounds: int = Settings.rounds,
        per_round: int | None = None,
        local_steps: int | None = None,
        local_epochs: int | None = None,
        sampling: Sampling | Sequence[float] = Settings.sampling,
        batch_size: int = Settings.batch_size,
        standardise: bool = Settings.standardise,
        seed: int | None = Settings.seed,
        eval_every: int = Settings.eval_every,
        evaluate: Measure | None = None,
        loss: Loss | None = None,
        schedule: Schedule | str = Schedule(),
        grad_norm: bool = Settings.grad_norm,
        device: str | torch.device = Settings.device,
        fleet: FleetName = Settings.fleet,
        workers: int = Settings.workers,
        kernels: Kernels = Settings.kernels,
        commit_every: int = Settings.commit_every,
        name: str = "",
        out: str | Path | None = None,
        progress: bool = True,
        **options: object,
    ) -> None:
        arguments.check_options(options, algorithm, inspect.signature(Run).parameters)
        federation = federation_from(clients, test, takes=inputs_of(model))
        given: dict[str, object] = {
            "clients": len(federation),
            "data": "",
            "partition": "",
            "algorithm": algorithm if isinstance(algorithm, str) else "",
            "rounds": rounds,
            "per_round": per_round,
            "local_steps": local_steps,
            "local_epochs": local_epochs,
            "sampling": sampling,
            "batch_size": batch_size,
            "standardise": standardise,
            "seed": secrets.randbits(31) if seed is None else seed,
            "eval_every": eval_every,
            "grad_norm": grad_norm,
            "device": device,
            "fleet": fleet,
            "workers": workers,
            "kernels": kernels,
            "commit_every": commit_every,
            "out": out or "",
        }
        settings = load_settings(None, arguments.named(given, schedule, options))
        make = None if isinstance(algorithm, str) else algorithm
        self._own(settings, model, federation, make, loss, None, evaluate, {"label": str(name)})
        self._progress = progress

    def _own(
        self,
        settings: Settings,
        model: nn.Module,
        federation: Federation,
        make: MakeAlgorithm | None,
        loss: Loss | None,
        earlier: Settings | None,
        evaluate: Measure | None,
        facts: Mapping[str, Any],
    ) -> None:
        """Set up the run with the user's own model and data, after checking them."""
        if settings.start or settings.lora:
            raise ConfigError(
                "is for models by name",
                "give your own with its weights and adapters in it, and omit this",
                setting="start" if settings.start else "lora",
            )
        task = task_of(model, federation.train, loss)
        federation = check_federation(task.of(federation))
        objective = Objective(model, task.loss, usable(settings.device), settings.kernels)
        objective = standardised(objective, federation) if settings.standardise else objective
        facts = {"door": "train", **facts}
        self._set_up(settings, objective, federation, facts, make, earlier, evaluate)

    def _set_up(
        self,
        settings: Settings,
        objective: Objective,
        federation: Federation,
        facts: Mapping[str, Any],
        make: MakeAlgorithm | None,
        earlier: Settings | None,
        evaluate: Measure | None,
    ) -> None:
        """Everything checked and ready, in this process and its workers; nothing trained yet."""
        sizes = federation.parts.sizes
        batch_size, schedule = settings.batch_size, settings.scheduling
        odds = probabilities(settings.sampling, sizes.tolist())
        algo = registry.configure(settings, settings.system_for(sizes), objective.shapes, make)
        registry.note_no_momentum(algo)
        check(schedule, algo)
        objective.check(federation.train)
        if not settings.standardise:
            note_scale(objective, federation)

        shared = None
        if earlier is not None:
            before = registry.configure(earlier, earlier.system_for(sizes), objective.shapes, make)
            registry.check_rounds(before, algo)
            shared = identify(before, objective, federation, settings)
        clients = DataClients(
            *(objective, federation.train, federation.parts, batch_size, settings.seed),
            epochs=settings.local_epochs,
        )
        chosen = choice.choose(settings.fleet, clients, algo.sys)
        self._evaluator = Evaluator(
            objective, federation, settings.seed, settings.grad_norm, evaluate
        )
        if earlier is not None and evaluate is None:
            note_lost_measures(Path(settings.out))
        said = replace(
            describe(algo, objective, federation),
            settings=settings.asdict(),
            identity=identify(algo, objective, federation, settings),
            fleet=chosen,
            **facts,
        )
        theta0, first = objective.theta0, algo.client(objective.theta0)
        self._progress = True
        super().__init__(
            lambda fleet, after: simulate(
                algo, fleet, theta0, settings.seed, schedule, after, odds=odds
            ),
            lambda stored: choice.start(
                chosen, algo, clients, settings.workers, States(first, stored)
            ),
            Everybody(algo, settings.seed, odds),
            objective,
            open_record(Path(settings.out) if settings.out else None, said, algo.sys.T, shared),
            self._evaluator,
            eval_every=settings.eval_every,
            commit_every=settings.commit_every,
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
        fleet: FleetName = Settings.fleet,
        workers: int = Settings.workers,
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
        earlier = with_fleet(restored(facts.settings), path, fleet, workers)
        settings = earlier if rounds is None else replace(earlier, rounds=rounds)
        federation = federation_from(clients, test, takes=inputs_of(model))
        if len(federation) != settings.clients:
            raise ConfigError(
                f"'{path}' was started with {settings.clients} clients, and now there are "
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
        model = configured(restored(facts.settings))[1].module
    elif facts.scaling:
        model = Standardised(model, facts.scaling)
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
    check_frozen(facts, objective, path)
    return objective.module_at(theta.to(objective.theta0))


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
    _, objective, federation = configured(restored(facts.settings))
    theta = torch.from_numpy(vectors["theta"]).to(objective.theta0)
    return evaluate.client_scores(objective, theta, federation)


def facts_of(path: Path) -> Facts:
    with closing(Record.open(path)) as record:
        return record.facts()


def resume_command(
    path: Path,
    fleet: FleetName = Settings.fleet,
    workers: int = Settings.workers,
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
    earlier = with_fleet(restored(facts.settings), path, fleet, workers)
    now = earlier if rounds is None else replace(earlier, rounds=rounds)
    return prepare(now, earlier=earlier, evaluate=evaluate)


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


def with_fleet(settings: Settings, path: Path, fleet: FleetName, workers: int) -> Settings:
    return replace(settings, out=str(path), fleet=fleet, workers=workers)


def own_data(
    settings: Settings,
    model: nn.Module,
    federation: Federation,
    make: MakeAlgorithm | None,
    loss: Loss | None,
    earlier: Settings | None = None,
    evaluate: Measure | None = None,
    facts: Mapping[str, Any] = {},
) -> Run:
    """The run of a user's own model and data, checked; nothing is trained yet."""
    run = Run.__new__(Run)
    run._own(settings, model, federation, make, loss, earlier, evaluate, facts)
    return run


def prepare(
    settings: Settings,
    facts: Mapping[str, Any] = {},
    earlier: Settings | None = None,
    evaluate: Measure | None = None,
) -> Run:
    """Everything a configured run needs, loaded and checked; nothing is trained yet.

    `facts` are stored in the run file beside the settings; `earlier` are the settings of a run
    to resume.
    """
    settings, objective, federation = configured(settings)
    out = settings.out or str(new_path(settings))
    settings = replace(settings, out=out)
    return simulation(settings, objective, federation, facts, earlier=earlier, evaluate=evaluate)


def configured(settings: Settings) -> tuple[Settings, Objective, Federation]:
    """The data and the model that the settings name; in those returned the model has a name."""
    options = registry.options_of(settings)
    registry.check(settings.algorithm, options, settings.explicit_steps)
    dataset, federation = named_data(settings)
    settings = with_start(replace(settings, model=settings.model or dataset.model))
    objective = named_objective(settings, dataset)
    objective = standardised(objective, federation) if settings.standardise else objective
    return settings, objective, federation


def simulation(
    settings: Settings,
    objective: Objective,
    federation: Federation,
    facts: Mapping[str, Any],
    make: MakeAlgorithm | None = None,
    earlier: Settings | None = None,
    evaluate: Measure | None = None,
) -> Run:
    """The run of these settings in this process and its workers, on named or given data."""
    run = Run.__new__(Run)
    run._set_up(settings, objective, federation, facts, make, earlier, evaluate)
    return run


def new_path(settings: Settings) -> Path:
    """The first free name in runs/."""
    method, data = (
        re.sub(r"[^\w.=+-]+", "_", Path(name).name)  # a user's own may be anywhere
        for name in (settings.algorithm, settings.data)
    )
    stem = f"{method}-{data}-seed{settings.seed}"
    number = 1
    while (path := Path("runs") / f"{stem}-{number:03}.sqlite").exists():
        number += 1
    return path
