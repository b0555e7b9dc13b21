"""A comparison on a user's own model and clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from torch import nn

from tunefree.core import text_of
from tunefree.data.clients import federation_from
from tunefree.data.samples import Federation
from tunefree.methods import registry
from tunefree.methods.own import Maker
from tunefree.models import seeded
from tunefree.models.answers import inputs_of
from tunefree.models.objective import flat
from tunefree.models.targets import Loss
from tunefree.record.provenance import fingerprint, identify_data, numbers_of
from tunefree.run.assemble import Functions, of_model
from tunefree.run.evaluate import Measure
from tunefree.run.keywords import Shared, by_name, check, settings_of, shows
from tunefree.run.run import AssembledRun, Run
from tunefree.search.batch import PlannedRun, folder_of, plan, run_groups
from tunefree.search.comparison import (
    Contender,
    Methods,
    Outcome,
    contenders,
    outcome,
    with_seed,
)
from tunefree.search.method_spec import configure
from tunefree.settings import Settings


class Workload(NamedTuple):
    """What all methods are trained on."""

    model: nn.Module | Callable[[], nn.Module]
    federation: Federation
    loss: Loss | None
    evaluate: Measure | None

    def module(self, seed: int) -> nn.Module:
        """The initial model of the runs with this seed."""
        return self.model if isinstance(self.model, nn.Module) else seeded(self.model, seed)

    def mark(self, seed: int) -> str:
        """Identifies this model and these data."""
        trained = [p for p in self.module(seed).parameters() if p.requires_grad]
        first = fingerprint(flat(trained).cpu().numpy()) if trained else ""
        return repr((sorted(identify_data(self.federation).items()), first, numbers_of(self.loss)))

    def start(self, run: PlannedRun, make: Maker | None) -> Run:
        """The run, or an interrupted one resumed."""
        settings, model = run.settings, self.module(run.settings.seed)
        functions = Functions(make, self.loss, self.evaluate)
        earlier = settings if run.path.exists() else None
        parts = of_model(settings, model, self.federation, functions, run.facts, earlier)
        return AssembledRun(parts)


@shows(Shared)
def compare(
    methods: Methods,
    model: nn.Module | Callable[[], nn.Module] | None = None,
    clients: Any = None,
    test: Any = None,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    target: float | None = None,
    out: str | Path = "",
    **settings: Unpack[Shared],
) -> list[Outcome]:
    """Train every method with every seed; one row per method, ready for `pandas.DataFrame`.

    The runs are trained one after the other. On data by name, `tunefree.search.compare` does
    several at once. The keyword arguments of `train` are settings that all methods share, except
    `algorithm`, `seed`, `name`, `out` and `progress`.

    Args:
        methods: Each one of `tunefree.methods`, such as `FedAvg(eta=0.1)`, your own, or as on the
            command line: "polarfl", "fedavg:eta=0.1"; a dict gives them names.
        model: A module, or a function that makes one, so that initial weights differ between
            seeds.
        clients: As for `train`.
        test: As for `train`.
        seeds: Each method is run once for each seed.
        target: Also count the rounds until this accuracy.
        out: The folder of the run files: the same call resumes there, and `tunefree report` shows
            them.

    >>> import torch
    >>> from tempfile import TemporaryDirectory
    >>> from tunefree.methods import FedAvg, PolarFL
    >>> clients = [(torch.randn(20, 4), torch.randint(3, (20,))) for _ in range(5)]
    >>> with TemporaryDirectory() as folder:
    ...     rows = compare(
    ...         [PolarFL(), FedAvg(eta=0.1)], nn.Linear(4, 3), clients, clients[0],
    ...         rounds=2, seeds=[0, 1], out=folder,
    ...     )
    >>> [(row.method, row.steps, len(row.runs)) for row in rows]
    [('polarfl', 'from theory', 2), ('fedavg:eta=0.1', 'chosen', 2)]
    """
    check(compare, settings)
    if model is None or clients is None or isinstance(model, str):
        raise by_name("compare", "model", model)
    chosen = contenders(methods, seeds)
    module = model if isinstance(model, nn.Module) else seeded(model, 0)
    federation = federation_from(clients, test, takes=inputs_of(module))
    workload = Workload(model, federation, settings.get("loss"), settings.get("evaluate"))
    base = settings_of(settings, federation)
    folder = folder_of(out, "compare", chosen, seeds, base, *map(workload.mark, seeds))
    groups = [plan_own(each, workload, base, seeds, folder) for each in chosen]
    makes = {run.path: each.make for each, runs in zip(chosen, groups, strict=True) for run in runs}
    results = run_groups(groups, start=lambda run: workload.start(run, makes[run.path]))
    return [outcome(each.spec, runs, target) for each, runs in zip(chosen, results, strict=True)]


def plan_own(
    method: Contender, workload: Workload, base: Settings, seeds: Sequence[int], folder: Path
) -> list[PlannedRun]:
    """The runs of a method, one for each seed, on the fleet that the settings name."""
    made, facts = "", dict[str, Any]()
    if method.make is None:
        settings, facts = configure(method.spec, base)
    else:
        usual = {name: getattr(Settings, name) for name in registry.WRAPPED}
        settings = replace(base, algorithm="", option={}, **usual)
        made = text_of(
            registry.build(method.make, base.system_for(workload.federation.parts.sizes))
        )
    runs = []
    for seed in seeds:
        mark = workload.mark(seed) + made
        run = plan(folder, method.label, with_seed(settings, seed), "method", facts, data=mark)
        where = replace(run.settings, fleet=base.fleet, workers=base.workers)
        runs.append(run._replace(settings=where))
    return runs
