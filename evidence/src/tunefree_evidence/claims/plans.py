"""What is asked for, and the runs it needs; the same plan always names the same files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tunefree.search import (
    PlannedRun,
    Result,
    Role,
    Search,
    Settings,
    TuningResult,
    is_finished,
    on_held_out,
    parse_method,
    plan,
    run_all,
    theory_of,
    with_seed,
)
from tunefree.search import configure as with_method
from tunefree.search import settings as settings_of
from tunefree_evidence.claims import recipes, theory
from tunefree_evidence.claims.checks import Curve, Table
from tunefree_evidence.claims.claims import CLAIMS, STUDIES, study_of
from tunefree_evidence.claims.folder import PICTURES
from tunefree_evidence.claims.recipes import (
    THEORY_ROUNDS,
    THEORY_SEEDS,
    TUNING_SEED,
    Scale,
    Setting,
)
from tunefree_evidence.claims.theory import Law

Key: TypeAlias = tuple[str, str]  # setting and method
Failures: TypeAlias = list[tuple[Key, str]]


class Order(NamedTuple):
    """What is asked for."""

    claims: Sequence[int]
    scale: Scale
    folder: Path
    seeds: tuple[int, ...] = ()  # empty: those of the size
    workers: int = 0
    own_units: bool = False  # decide a claim that does not hold again, in own units

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
        """The laws of a theorem, and the file with their measurements."""
        rows = theory.laws(claim, THEORY_ROUNDS[self.scale])
        what = json.dumps([claim, self.theory_seeds, rows], default=asdict)
        mark = hashlib.sha256(what.encode()).hexdigest()[:12]
        return self.runs / f"theory-{claim}-{mark}.json", rows

    def command(self, claim: int) -> str:
        seeds = f" --seeds {' '.join(map(str, self.seeds))}" if self.seeds else ""
        return f"tunefree-evidence claims {claim} --scale {self.scale}{seeds}"

    def studies(self) -> dict[str, list[int]]:
        """The claims by study, in the order of studies."""
        found = {study: [c for c in self.claims if study_of(c) == study] for study in STUDIES}
        return {study: claims for study, claims in found.items() if claims}


def union(claims: Iterable[int]) -> list[Key]:
    """Every setting and method that the claims need, once."""
    keys = (
        (w, method)
        for claim in claims
        for w, each in CLAIMS[claim].needs.items()
        for method in each
    )
    return list(dict.fromkeys(keys))


class Plans:
    """The searches and runs that a study's methods need."""

    def __init__(self, order: Order, needs: Sequence[Key]) -> None:
        self.order, self.needs = order, needs
        self._configs: dict[Key, Settings] = {}
        self.settings = recipes.settings(order.scale)
        self.searches = {
            (self.settings[where].tuned_in or where, method): None
            for where, method in needs
            if recipes.is_tuned(method)
        }

    def configure(self, where: str, method: str) -> Settings:
        """The method's settings, without step sizes that are still to be tuned."""
        if (where, method) not in self._configs:
            self._configs[where, method] = self._configure(where, method)
        return self._configs[where, method]

    def _configure(self, where: str, method: str) -> Settings:
        keys = dict(self.settings[where].settings)
        spec = parse_method(method)
        if spec.name == "defedavg_niid":
            keys["dispatch"] = "queue"  # the method's own rule
        if recipes.swept_step(method):
            keys["eval_every"] = keys["rounds"]  # only its end is used
        return with_method(spec, settings_of(None, **keys))[0]

    def search(self, where: str, method: str) -> Search:
        """The search for a method's step sizes, on held-out samples, scored once at the end."""
        full = self.configure(where, method)
        trial = on_held_out(replace(full, eval_every=full.rounds))
        grid = recipes.grid_of(parse_method(method).name, self.order.scale)
        return Search(trial, grid, self.order.runs)

    def seeds(self, where: str, method: str) -> tuple[int, ...]:
        setting: Setting = self.settings[where]
        few = setting.sweep_seeds if recipes.swept_step(method) else setting.seeds
        return self.order.run_seeds[:few]

    def runs(self, found: Mapping[Key, TuningResult]) -> dict[Key, list[PlannedRun]]:
        """The runs of every method whose step sizes are known."""
        planned: dict[Key, list[PlannedRun]] = {}
        for where, method in self.needs:
            full, facts = self.configure(where, method), dict[str, object]()
            if recipes.is_tuned(method):
                tuned = found.get((self.settings[where].tuned_in or where, method))
                if tuned is None:
                    continue
                full = replace(full, option=tuned.options)
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
        """The trials of all searches before their grids are extended."""
        for key in self.searches:
            search = self.search(*key)
            yield from (search.plan(point, TUNING_SEED) for point in search.points)

    def unfinished(self) -> list[Settings]:
        """The settings of trials and runs that are still missing, for an estimate.

        Runs of methods that are tuned are counted whether they exist or not.
        """
        known = (run for runs in self.runs({}).values() for run in runs)
        left = [run.settings for run in (*self.trials(), *known) if not is_finished(run)]
        tuned = ((where, method) for where, method in self.needs if recipes.is_tuned(method))
        return left + [self.configure(*key) for key in tuned for _ in self.seeds(*key)]

    @property
    def size(self) -> str:
        finals = sum(len(self.seeds(where, method)) for where, method in self.needs)
        trials = len(list(self.trials()))
        return f"{f'at least {trials} tuning trials, ' if trials else ''}{finals} runs"


def sweep_fact(config: Settings, step: str) -> dict[str, object]:
    """Which step size of a sweep a run has, and what the formulas would give."""
    theory = theory_of(config.algorithm, step, config)
    return {"over": step, "value": config.option[step], "theory": theory}


def run_once(runs: Iterable[PlannedRun], workers: int) -> dict[Path, Result]:
    """Run each of these once, though several may be the same."""
    different = {run.path: run for run in runs}
    return dict(zip(different, run_all(list(different.values()), workers), strict=True))


def run_planned(
    planned: Mapping[Key, Sequence[PlannedRun]], workers: int
) -> tuple[Table, Failures]:
    """Run everything that is planned: the curves of all methods, and the runs that failed."""
    results = run_once((run for runs in planned.values() for run in runs), workers)
    table: dict[Key, dict[int, Curve]] = {}
    failures: Failures = []
    for key, runs in planned.items():
        table[key] = {}
        for run in runs:
            result, T = results[run.path], run.settings.rounds
            if result.state == "failed":
                failures.append((key, f"{run.name}: {result.reason}"))
            else:
                diverged = result.state == "diverged"
                table[key][run.settings.seed] = Curve(result.history, T, diverged)
    return table, failures
