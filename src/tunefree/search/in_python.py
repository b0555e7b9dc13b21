"""A comparison from Python, on your own model and clients or on a data set by name."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from torch import nn

from tunefree import derive
from tunefree.core import text_of
from tunefree.data.clients import federation_from
from tunefree.data.samples import Federation
from tunefree.errors import ConfigError, FleetError, RecordError, WireError, no_argument
from tunefree.methods import registry
from tunefree.models import seeded
from tunefree.models.objective import Objective
from tunefree.models.targets import Loss
from tunefree.record.provenance import fingerprint, identify_data
from tunefree.run import arguments
from tunefree.run.assemble import MakeAlgorithm, own_data
from tunefree.run.evaluate import Measure
from tunefree.run.progress import BatchProgress
from tunefree.search import batch
from tunefree.search import compare as configured
from tunefree.search.batch import PlannedRun, Progress, Result, failure, plan, saved_result
from tunefree.search.compare import Outcome, check_once, outcome, with_seed
from tunefree.search.methods import MethodSpec, check_seeds, configure, labels, parse_method
from tunefree.settings import FIELDS, Schedule, Settings, load

Given: TypeAlias = str | MakeAlgorithm  # NAME, NAME:key=value, NAME@tuned.json, or a function
BY_ARGUMENT = (
    "clients",
    "data",
    "model",
    "algorithm",
    "seed",
    "out",
    "schedule",
)  # not settings here


class Method(NamedTuple):
    """A method and its name in the comparison."""

    label: str
    spec: MethodSpec
    make: MakeAlgorithm | None  # the user's own function


class Task(NamedTuple):
    """What all methods are trained on."""

    model: nn.Module | Callable[[], nn.Module]
    federation: Federation
    loss: Loss | None
    evaluate: Measure | None

    def module(self, seed: int) -> nn.Module:
        return self.model if isinstance(self.model, nn.Module) else seeded(self.model, seed)

    def mark(self, seed: int) -> str:
        """Identifies this model and these data."""
        first = fingerprint(Objective(self.module(seed)).theta0.cpu().numpy())
        return repr((sorted(identify_data(self.federation).items()), first, text_of(self.loss)))


def compare(
    methods: Sequence[Given] | Mapping[str, Given],
    model: nn.Module | Callable[[], nn.Module] | str = "",
    clients: Any = None,
    test: Any = None,
    *,
    data: str = "",
    seeds: Sequence[int] = (0, 1, 2),
    target: float | None = None,
    out: str | Path = "",
    schedule: Schedule | str = Schedule(),
    loss: Loss | None = None,
    evaluate: Measure | None = None,
    **settings: object,
) -> list[Outcome]:
    """Train every method with every seed; one row per method, ready for `pandas.DataFrame`.

    With your own clients the runs are trained one after the other.

    Args:
        methods: Each as on the command line, "polarfl" or "fedavg:eta=0.1", or a function of
            the system constants; a dict gives them names.
        model: A module, or a function that makes one, so that initial weights differ between
            seeds. With `data`, the name of a model, or none.
        clients: As for `train`; with `data`, the number of clients.
        test: As for `train`.
        data: The name of a data set, instead of your own clients.
        seeds: Each method is run once for each seed.
        target: Also count the rounds until this accuracy.
        out: The folder of the run files: the same call resumes there, and `tunefree report` shows
            them.
        schedule: As for `train`.
        loss: As for `train`.
        evaluate: As for `train`.
        settings: Those of `train`, the same for all methods; with `data` also `partition`,
            `data_option` and `model_option`, and `workers` is the number of runs at once.

    >>> import torch
    >>> from tempfile import TemporaryDirectory
    >>> clients = [(torch.randn(20, 4), torch.randint(3, (20,))) for _ in range(5)]
    >>> with TemporaryDirectory() as folder:
    ...     rows = compare(
    ...         ["polarfl", "fedavg:eta=0.1"], nn.Linear(4, 3), clients, clients[0],
    ...         rounds=2, seeds=[0, 1], out=folder,
    ...     )
    >>> [(row.method, row.steps, len(row.runs)) for row in rows]
    [('polarfl', 'from theory', 2), ('fedavg:eta=0.1', 'chosen', 2)]
    """
    chosen = named_methods(methods)
    check_once([method.label for method in chosen], seeds)
    check_seeds([method.spec for method in chosen], seeds)
    known = {name for name, f in FIELDS.items() if f.metadata.get("flag")}
    known -= {*BY_ARGUMENT, *Schedule.__dataclass_fields__}
    known -= {"fleet"} if data else {"partition", "data_dir"}
    known |= {"data_option", "model_option"} if data else set()
    for name in set(settings) - known:
        raise no_argument("compare", name, {*known, "seeds", "target"})
    given = {**settings, "data": data, "clients": clients}
    if data:
        workers = given.pop("workers", 0)
        if loss or evaluate or test is not None or not isinstance(model, str):
            raise ConfigError(
                "model, test, loss and evaluate are for your own clients; with data = "
                f"{data!r} give the model by its name, or none, and omit the others"
            )
        base = derive.settings(None, arguments.named({**given, "model": model}, schedule))
        folder = folder_of(out, chosen, seeds, base)
        return named_data(chosen, base, seeds, folder, target, workers)
    if isinstance(model, str) or clients is None:
        raise ConfigError(
            "compare needs a model and clients, or the name of a data set; give "
            "compare(methods, model, clients) or compare(methods, data='digits')"
        )
    task = Task(model, federation_from(clients, test), loss, evaluate)
    own = {"clients": len(task.federation), "partition": ""}
    base = load(None, arguments.named({**given, **own}, schedule))
    folder = folder_of(out, chosen, seeds, base, *map(task.mark, seeds))
    return own_clients(chosen, task, base, seeds, folder, target)


def named_methods(given: Sequence[Given] | Mapping[str, Given]) -> list[Method]:
    """The methods with their names: those that the user gave, or else their texts."""
    if isinstance(given, str) or not given:
        raise ConfigError(
            f"methods = {given!r} must be a list of methods, such as ['polarfl', 'fedavg']"
        )
    values = list(given.values()) if isinstance(given, Mapping) else list(given)
    specs = [parse_method(v) if isinstance(v, str) else MethodSpec(called(v)) for v in values]
    names = list(given) if isinstance(given, Mapping) else labels(specs)
    made = [None if isinstance(value, str) else value for value in values]
    return [Method(*each) for each in zip(names, specs, made, strict=True)]


def called(make: MakeAlgorithm) -> str:
    return str(getattr(make, "__qualname__", text_of(make)))


def folder_of(out: str | Path, *what: object) -> Path:
    """The given folder, or one named after the call, so that the same call finds it again."""
    mark = hashlib.sha256(text_of(what).encode()).hexdigest()[:8]
    return Path(out) if out else Path("runs") / f"compare-{mark}"


def named_data(
    chosen: Sequence[Method],
    base: Settings,
    seeds: Sequence[int],
    folder: Path,
    target: float | None,
    workers: Any,
) -> list[Outcome]:
    """The command line's comparison: runs in other processes, which get names only."""
    for method in chosen:
        if method.make is not None:
            raise ConfigError(
                f"method {method.label!r} is a function, which needs a model and clients of "
                "your own; give those instead of the name of a data set"
            )
    names = [method.label for method in chosen]
    specs = [method.spec for method in chosen]
    return configured.compare(specs, base, seeds, folder, target, workers, names)


def own_clients(
    chosen: Sequence[Method],
    task: Task,
    base: Settings,
    seeds: Sequence[int],
    folder: Path,
    target: float | None,
) -> list[Outcome]:
    """One run after the other, in this process and its workers."""
    planned = [
        [planned_run(method, task, base, seed, folder) for seed in seeds] for method in chosen
    ]
    outcomes = []
    count = len(chosen) * len(seeds)
    with BatchProgress(count, count * base.rounds) as progress, warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: progress.note(str(message))
        for method, runs in zip(chosen, planned, strict=True):
            results = [run_to_end(run, method, task, progress) for run in runs]
            algo = (
                None
                if method.make is None
                else registry.build(method.make, base.system_for(task.federation.parts.sizes))
            )
            outcomes.append(outcome(method.spec, results, target, algo))
    return outcomes


def planned_run(method: Method, task: Task, base: Settings, seed: int, folder: Path) -> PlannedRun:
    """The run of a method, on the fleet that the settings name."""
    settings, facts = base, dict[str, Any]()
    mark = task.mark(seed)
    if method.make is None:
        settings, facts = configure(method.spec, base)
    else:
        settings = replace(
            base, algorithm="", compressor="", decay="none", weighting="uniform", option={}
        )
        mark += text_of(registry.build(method.make, base.system_for(task.federation.parts.sizes)))
    run = plan(folder, method.label, with_seed(settings, seed), "method", facts, data=mark)
    fleet = replace(run.settings, fleet=base.fleet, workers=base.workers)
    return run._replace(settings=fleet)


def run_to_end(run: PlannedRun, method: Method, task: Task, progress: BatchProgress) -> Result:
    """The result of the run, which is started or resumed unless it is finished."""
    result = saved_result(run)
    if result is None:
        started = run.settings if run.path.exists() else None
        model = task.module(run.settings.seed)
        try:
            training = own_data(
                *(run.settings, model, task.federation, method.make, task.loss, started),
                evaluate=task.evaluate,
                facts=run.facts,
            )
            with closing(training.record):
                for row in training:
                    batch.show(Progress(run, row), progress)
        except WireError:
            pass  # diverged; the reason is in the run file
        except (FleetError, RecordError) as error:
            result = failure(run, str(error))
        result = result or saved_result(run)
    assert result is not None
    batch.show(result, progress)
    return result
