"""What is asked for, and the runs it comes to; whoever plans the same runs finds the same files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tunefree import config
from tunefree.config import Config
from tunefree.experiments import methods, tune
from tunefree.experiments.batch import PlannedRun, Result, Role, is_finished, plan, run_all
from tunefree.experiments.compare import with_seed
from tunefree.experiments.sweep import theory_of
from tunefree.experiments.tune import Search, TuningResult
from tunefree.reproduce import recipes, theory
from tunefree.reproduce.checks import Curve, Table
from tunefree.reproduce.claims import CLAIMS, STUDIES, study_of
from tunefree.reproduce.folder import PICTURES
from tunefree.reproduce.recipes import THEORY_ROUNDS, THEORY_SEEDS, TUNING_SEED, Scale, Setting
from tunefree.reproduce.theory import Law

Key: TypeAlias = tuple[str, str]  # setting and method
Failures: TypeAlias = list[tuple[Key, str]]


class Order(NamedTuple):
    """What is asked for."""

    claims: Sequence[int]
    scale: Scale
    folder: Path
    seeds: tuple[int, ...] = ()  # none: those of the size
    workers: int = 0
    own_units: bool = False  # ask of a claim that does not hold whether its steps are the reason

    @property
    def runs(self) -> Path:
        return self.folder / self.scale

    def picture(self, name: str) -> Path:
        return self.folder / PICTURES / f"{name}-{self.scale}.png"

    @property
    def run_seeds(self) -> tuple[int, ...]:
        return self.seeds or recipes.SEEDS[self.scale]

    @property
    def theory_seeds(self) -> tuple[int, ...]:
        return self.seeds or THEORY_SEEDS[self.scale]

    def laws(self, claim: int) -> tuple[Path, list[Law]]:
        """What a theorem promises, and the file that holds what was measured of it."""
        rows = theory.laws(claim, THEORY_ROUNDS[self.scale])
        what = json.dumps([claim, self.theory_seeds, rows], default=asdict)
        mark = hashlib.sha256(what.encode()).hexdigest()[:12]
        return self.runs / f"theory-{claim}-{mark}.json", rows

    def command(self, claim: int) -> str:
        seeds = f" --seeds {' '.join(map(str, self.seeds))}" if self.seeds else ""
        return f"tunefree reproduce {claim} --scale {self.scale}{seeds}"

    def studies(self) -> dict[str, list[int]]:
        """The claims by study, in the order of studies."""
        found = {study: [c for c in self.claims if study_of(c) == study] for study in STUDIES}
        return {study: claims for study, claims in found.items() if claims}


def union(claims: Iterable[int]) -> list[Key]:
    """Every method that one of the claims needs, once."""
    keys = (
        (w, method)
        for claim in claims
        for w, each in CLAIMS[claim].needs.items()
        for method in each
    )
    return list(dict.fromkeys(keys))


class Plans:
    """What a study's methods come to: settings to be tuned, and runs."""

    def __init__(self, order: Order, needs: Sequence[Key]) -> None:
        self.order, self.needs = order, needs
        self._configs: dict[Key, Config] = {}
        self.settings = recipes.settings(order.scale)
        self.searches = {
            (self.settings[where].tuned_in or where, method): None
            for where, method in needs
            if recipes.is_tuned(method)
        }

    def configure(self, where: str, method: str) -> Config:
        """The method's settings, steps that are to be tuned left out."""
        if (where, method) not in self._configs:
            self._configs[where, method] = self._configure(where, method)
        return self._configs[where, method]

    def _configure(self, where: str, method: str) -> Config:
        keys = dict(self.settings[where].settings)
        spec = methods.parse_method(method)
        if spec.name == "defedavg_niid":
            keys["schedule.dispatch"] = "queue"  # the method's own rule
        if recipes.swept_step(method):
            keys["run.eval_every"] = keys["system.T"]  # only its end is looked at
        return methods.configure(spec, config.load(None, keys))[0]

    def search(self, where: str, method: str) -> Search:
        """The search for a method's steps, on samples held out, scored once at the end."""
        full = self.configure(where, method)
        trial = replace(
            full,
            data=replace(full.data, validation=tune.SHARE),
            run=replace(full.run, eval_every=full.system.T),
        )
        grid = recipes.grid_of(methods.parse_method(method).name, self.order.scale)
        return Search(trial, grid, self.order.runs)

    def seeds(self, where: str, method: str) -> tuple[int, ...]:
        setting: Setting = self.settings[where]
        few = setting.sweep_seeds if recipes.swept_step(method) else setting.seeds
        return self.order.run_seeds[:few]

    def runs(self, found: Mapping[Key, TuningResult]) -> dict[Key, list[PlannedRun]]:
        """The runs of every method whose steps are known."""
        planned: dict[Key, list[PlannedRun]] = {}
        for where, method in self.needs:
            full, facts = self.configure(where, method), dict[str, object]()
            if recipes.is_tuned(method):
                tuned = found.get((self.settings[where].tuned_in or where, method))
                if tuned is None:
                    continue
                full = replace(full, algorithm=replace(full.algorithm, options=tuned.options))
                facts["tuning"] = tuned.bill
            step = recipes.swept_step(method)
            if step:
                facts["sweep"] = sweep_fact(full, step)
            role: Role = "sweep" if step else "method"
            planned[where, method] = [
                plan(self.order.runs, method, with_seed(full, seed), role, facts)
                for seed in self.seeds(where, method)
            ]
        return planned

    def trials(self) -> Iterator[PlannedRun]:
        """The searches before they grow."""
        for key in self.searches:
            search = self.search(*key)
            yield from (search.plan(point, TUNING_SEED) for point in search.points)

    def unfinished(self) -> list[Config]:
        """The settings of trials and runs that are not there yet, for an estimate.

        Runs at steps that a search is still to find are counted whether they are there or not.
        """
        known = (run for runs in self.runs({}).values() for run in runs)
        left = [run.config for run in (*self.trials(), *known) if not is_finished(run)]
        tuned = ((where, method) for where, method in self.needs if recipes.is_tuned(method))
        return left + [self.configure(*key) for key in tuned for _ in self.seeds(*key)]

    @property
    def size(self) -> str:
        finals = sum(len(self.seeds(where, method)) for where, method in self.needs)
        return f"{len(list(self.trials()))} tuning trials or more, {finals} runs"


def sweep_fact(config: Config, step: str) -> dict[str, object]:
    """Which step size a run stands for, and what the formulas would give."""
    chosen = config.algorithm
    theory = theory_of(chosen.name, step, config)
    return {"over": step, "value": chosen.options[step], "theory": theory}


def run_once(runs: Iterable[PlannedRun], workers: int) -> dict[Path, Result]:
    """Play runs of which several may be the same."""
    different = {run.path: run for run in runs}
    return dict(zip(different, run_all(list(different.values()), workers), strict=True))


def play(planned: Mapping[Key, Sequence[PlannedRun]], workers: int) -> tuple[Table, Failures]:
    """The curves of all methods, and what went wrong."""
    results = run_once((run for runs in planned.values() for run in runs), workers)
    table: dict[Key, dict[int, Curve]] = {}
    failures: Failures = []
    for key, runs in planned.items():
        table[key] = {}
        for run in runs:
            result, T = results[run.path], run.config.system.T
            if result.state == "failed":
                failures.append((key, f"{run.name}: {result.reason}"))
            else:
                diverged = result.state == "diverged"
                table[key][run.config.run.seed] = Curve(result.history, T, diverged)
    return table, failures
